#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>

namespace lorikeet::comm {

/// Makes a device run the collectives of several NCCL groups one after the other, in the order in which the
/// host issues them.
///
/// Each group has a stream of its own. A collective occupies the device until all ranks of its group have
/// started it, so that two groups' collectives, started in different orders on two devices, may wait for each
/// other for ever. All ranks issue collectives in the same order; this makes it the order of execution.
///
/// One stream stands for the order: a collective is issued on it, and it then waits for the collective. The
/// compute stream waits for none.
class StreamOrder {
 public:
  /// What start() returns: makes the current stream of its device wait for the collective.
  using Wait = std::function<void()>;

  /// Calls `start`, which issues a collective that waits for the current stream of `device`, on the stream
  /// that stands for the order. All calls of a process name the same device.
  Wait start(const c10::Device& device, const std::function<Wait()>& start);

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace lorikeet::comm
