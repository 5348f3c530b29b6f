#include "ops/capability.h"

#include <iterator>

#include "device/device.h"
#include "ops/dry_run.h"

namespace lorikeet::ops {

int capability_of(const at::Tensor& tensor) {
  if (tensor.is_meta()) return dry_target() != nullptr ? dry_target()->capability : 0;
  if (!tensor.is_cuda()) return 0;
  const auto& devices = device::cuda_devices();
  const at::DeviceIndex index = tensor.get_device();
  return index < std::ssize(devices) ? devices[static_cast<std::size_t>(index)].capability() : 0;
}

}  // namespace lorikeet::ops
