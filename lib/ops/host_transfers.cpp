#include "ops/host_transfers.h"

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/error.h"
#include "base/strings.h"
#include "ops/dry_run.h"
#include "ops/out_of_memory.h"

namespace lorikeet::ops {

HostTransfers::HostTransfers(const at::Device& device) : device_(device) {
  if (device.is_cuda()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

HostTransfers::Copy HostTransfers::to_host(const at::Tensor& tensor, std::int64_t room_bytes) {
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  const std::int64_t taken = stream_ ? std::max(bytes, room_bytes) : bytes;
  const at::Tensor host = host_memory(taken, device_).slice(0, 0, bytes);
  Copy out{.to = host.view(tensor.scalar_type()).view(tensor.sizes())};
  out.done = copy(out.to, tensor);
  return out;
}

HostTransfers::Copy HostTransfers::to_device(const at::Tensor& host) {
  const at::Tensor target = at::empty(host.sizes(), host.options().device(device_).pinned_memory(false));
  return {target, to_device(host, target)};
}

std::shared_ptr<c10::Event> HostTransfers::to_device(const at::Tensor& host, const at::Tensor& target) {
  return copy(target, host);
}

std::shared_ptr<c10::Event> HostTransfers::copy(const at::Tensor& to, const at::Tensor& from) {
  if (!stream_) {
    to.copy_(from);
    return nullptr;
  }
  // What fills `from`, and what used the memory of `to` before, was put on the current stream.
  c10::Event before(device_.type());
  before.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  before.block(*stream_);
  const c10::StreamGuard on_stream(*stream_);
  to.copy_(from, /*non_blocking=*/true);
  auto done = std::make_shared<c10::Event>(device_.type());
  done->record(*stream_);
  return done;
}

double HostTransfers::read(const Copy& copy) const {
  if (copy.done) copy.done->synchronize();
  return copy.to.item<double>();
}

void HostTransfers::wait(std::shared_ptr<c10::Event>& done) const {
  if (done) done->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  done.reset();
}

at::Tensor host_memory(std::int64_t bytes, const at::Device& device) {
  if (device.is_meta()) {
    const DryHostMemory counted;
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  }
  const auto options = at::TensorOptions().dtype(at::kByte);
  if (!device.is_cuda()) return at::empty({bytes}, options);
  try {
    return at::empty({bytes}, options.pinned_memory(true));
  } catch (const c10::AcceleratorError& error) {
    if (!is_out_of_memory(error)) throw;
    throw Error(
        "[memory] can't pin another " + format_bytes(static_cast<std::uint64_t>(bytes)) +
            " of the host's memory for the GPU, which training.offload needs: the host has no more, or the "
            "system bounds it (WSL to about half); offload less",
        ErrorKind::kEnvironment);
  }
}

void release_host_memory(const at::Device& device) {
  if (device.is_cuda()) at::getHostAllocator(device.type())->empty_cache();
}

std::int64_t host_memory_bytes(std::int64_t bytes, at::DeviceType device) {
  if (device == at::kCPU || bytes == 0) return bytes;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

}  // namespace lorikeet::ops
