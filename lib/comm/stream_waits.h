#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace lorikeet::comm {

/// The time for which a CUDA stream waits for collectives, measured by two events on it around each wait. It
/// is known only once the device has passed both.
class StreamWaits {
 public:
  StreamWaits();
  ~StreamWaits();
  StreamWaits(const StreamWaits&) = delete;
  StreamWaits& operator=(const StreamWaits&) = delete;

  /// Records an event before the current stream of `device` waits; end() records the one after.
  void begin(const at::Device& device);
  void end();

  /// Seconds of all waits that the device has passed and that no call has returned yet.
  double take_seconds();

 private:
  // Adds up the waits that the device has passed.
  void collect();

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lorikeet::comm
