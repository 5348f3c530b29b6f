#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace lorikeet::comm {

/// How long a CUDA stream stood still for collectives: the time between two events on it, around each wait.
/// It is known only once the device has got there.
class StreamWaits {
 public:
  StreamWaits();
  ~StreamWaits();
  StreamWaits(const StreamWaits&) = delete;
  StreamWaits& operator=(const StreamWaits&) = delete;

  /// The current stream of `device` is about to wait; end() follows when it has been told to.
  void begin(const at::Device& device);
  void end();

  /// Seconds of all waits that the device has passed and that weren't taken before.
  double take_seconds();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lorikeet::comm
