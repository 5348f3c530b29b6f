#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <array>
#include <cstddef>
#include <optional>

namespace lorikeet::models {

/// Copies numbers of ordinary host memory (a mapped file's) to a device. To a GPU they go through two pinned
/// buffers, so that one is filled while the other is on its way: the host waits only before it fills a buffer
/// whose last copy isn't done.
class StagedUpload {
 public:
  /// target.copy_(source), converted on the host, for a dense target. `source` may change afterwards; a
  /// target on a GPU is filled once `finish` has returned, for work on the current stream at once. Returns
  /// what was copied, in the target's dtype on the host; on a GPU it lies in a buffer, and is valid until the
  /// next call.
  at::Tensor copy(const at::Tensor& target, const at::Tensor& source);

  /// Waits until everything is copied.
  void finish();

 private:
  struct Buffer {
    at::Tensor memory;               // uint8, pinned
    std::optional<c10::Event> done;  // of the last copy out of it; empty where it was waited for
  };
  static void wait(Buffer& buffer);

  std::array<Buffer, 2> buffers_;
  std::size_t next_ = 0;
};

}  // namespace lorikeet::models
