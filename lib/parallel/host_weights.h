#pragma once

#include <ATen/core/Tensor.h>

#include "ops/host_transfers.h"
#include "parallel/unit_prefetcher.h"

namespace lorikeet::parallel {

/// Brings the units of a model whose matrices lie in the host's memory (nn::WeightStore::allocate, on_host)
/// to `device`, beside the device's work.
class HostWeights : public UnitPrefetcher {
 public:
  HostWeights(const at::Device& device, nn::CausalLM& model)
      : UnitPrefetcher(model), device_(device), transfers_(device) {}

 protected:
  at::Tensor buffer_of(const nn::WeightUnit& unit) override;
  comm::Pending fetch(const nn::WeightUnit& unit, const at::Tensor& buffer) override;

 private:
  at::Device device_;
  ops::HostTransfers transfers_;
};

}  // namespace lorikeet::parallel
