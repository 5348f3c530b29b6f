#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>

namespace at {
class RecordFunction;
}  // namespace at

namespace lorikeet::trace {

/// A figure that goes with a range: {"tokens", 4096}.
struct Arg {
  const char* name;
  std::int64_t value;
};

/// What this thread does while the object lives, by name, for whoever watches: the trace of a step
/// (StepTrace), and tools that read NVTX, such as Nsight Systems. Ranges of a thread nest. Times are the
/// host's: on a GPU a range covers the starting of kernels, and the kernels themselves stand on the device's
/// own line. Where nobody watches it costs some 25 ns.
class Range {
 public:
  explicit Range(const char* name, std::initializer_list<Arg> args = {});
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  std::unique_ptr<at::RecordFunction> recorded_;
  bool marked_ = false;
};

}  // namespace lorikeet::trace
