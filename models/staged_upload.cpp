#include "models/staged_upload.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace lorikeet::models {
namespace {

// Of a buffer at first; one that is too small is replaced.
constexpr std::int64_t kBufferBytes = std::int64_t{8} << 20;

}  // namespace

void StagedUpload::wait(Buffer& buffer) {
  if (buffer.done) buffer.done->synchronize();
  buffer.done.reset();
}

at::Tensor StagedUpload::copy(const at::Tensor& target, const at::Tensor& source) {
  if (!target.is_cuda()) {
    target.copy_(source);
    return target;
  }
  Buffer& buffer = buffers_[next_];
  next_ = 1 - next_;
  wait(buffer);
  const auto bytes = static_cast<std::int64_t>(target.nbytes());
  if (!buffer.memory.defined() || buffer.memory.numel() < bytes) {
    buffer.memory =
        at::empty({std::max(bytes, kBufferBytes)}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  }
  const at::Tensor staged = buffer.memory.slice(0, 0, bytes).view(target.scalar_type()).view(target.sizes());
  staged.copy_(source);
  target.copy_(staged, /*non_blocking=*/true);
  const at::Device device = target.device();
  buffer.done.emplace(device.type());
  buffer.done->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return staged;
}

void StagedUpload::finish() {
  for (Buffer& buffer : buffers_) wait(buffer);
}

}  // namespace lorikeet::models
