#include "parallel/host_weights.h"

#include <ATen/ATen.h>

#include <utility>

namespace lorikeet::parallel {

at::Tensor HostWeights::buffer_of(const nn::WeightUnit& unit) {
  return at::empty({unit.matrix_bytes()}, at::TensorOptions().dtype(at::kByte).device(device_));
}

comm::Pending HostWeights::fetch(const nn::WeightUnit& unit, const at::Tensor& buffer) {
  auto done = transfers_.to_device(unit.part(), buffer);
  return comm::Pending([this, done = std::move(done)]() mutable { transfers_.wait(done); });
}

}  // namespace lorikeet::parallel
