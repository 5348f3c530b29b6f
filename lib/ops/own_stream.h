#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>

namespace lorikeet::ops {

/// Makes a stream of the GPU's pool the current one while it lives, in order with the one that was: work on
/// the default stream can't be recorded (device_graph.h). Does nothing where the device is no GPU.
class OwnStream {
 public:
  explicit OwnStream(const at::Device& device);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  std::optional<c10::StreamGuard> guard_;
};

}  // namespace lorikeet::ops
