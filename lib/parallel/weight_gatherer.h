#pragma once

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "parallel/unit_prefetcher.h"

namespace lorikeet::parallel {

/// Gathers the units of a model whose matrices are split over the ranks of `group`. All ranks use the units
/// in the same order: they run the same number of passes (nn::WeightStore::is_split), a rank whose pass ended
/// early calls `finish_pass` while the others wait for its parts of the units, and all call `drain` at the
/// end.
class WeightGatherer : public UnitPrefetcher {
 public:
  /// `model` is allocated as part group.rank() of group.size().
  WeightGatherer(comm::Communicator& group, nn::CausalLM& model) : UnitPrefetcher(model), group_(group) {}

 protected:
  at::Tensor buffer_of(const nn::WeightUnit& unit) override;
  comm::Pending fetch(const nn::WeightUnit& unit, const at::Tensor& buffer) override;

 private:
  comm::Communicator& group_;
};

}  // namespace lorikeet::parallel
