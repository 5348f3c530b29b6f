#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <chrono>
#include <memory>

namespace lorikeet::ops {

/// When a device's work reaches a point. A GPU works behind the host, so that its own clock has to be asked:
/// the host may read a number long after it was there.
class DeviceClock {
 public:
  explicit DeviceClock(const at::Device& device) : device_(device) {}

  /// The point behind all work that was put on the device's current stream so far.
  struct Mark {
    std::chrono::steady_clock::time_point host;  ///< when the mark was made: on a CPU all work is done then
    std::shared_ptr<c10::Event> event;           ///< null on a CPU
  };
  Mark mark() const;

  /// Seconds from one mark to a later one. On a GPU both have been reached: the host has waited for something
  /// that came behind them.
  static double seconds_between(const Mark& begin, const Mark& end);

 private:
  at::Device device_;
};

}  // namespace lorikeet::ops
