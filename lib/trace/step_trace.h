#pragma once

#include <filesystem>

namespace lorikeet::trace {

/// Records what this thread, and those that work for it, do while the object lives: ranges (Range),
/// libtorch's operators with the shapes of their inputs, collectives, and on a GPU the kernels and copies.
/// One at a time in a process; libtorch's own profiler does the work. It changes nothing that is computed,
/// but slows it down.
class StepTrace {
 public:
  /// `cuda`: also what CUDA devices do.
  explicit StepTrace(bool cuda);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Ends the recording and writes it to `path`, in Chrome's trace format (JSON; Perfetto and
  /// chrome://tracing read it). The process id tells ranks apart. Once only. Throws Error (kEnvironment) when
  /// the file can't be written.
  void save(const std::filesystem::path& path);

 private:
  bool running_ = true;
};

}  // namespace lorikeet::trace
