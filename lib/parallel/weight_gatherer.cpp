#include "parallel/weight_gatherer.h"

#include <ATen/ATen.h>

namespace lorikeet::parallel {

at::Tensor WeightGatherer::buffer_of(const nn::WeightUnit& unit) {
  return at::empty({unit.part().numel() * group_.size()}, unit.part().options());
}

comm::Pending WeightGatherer::fetch(const nn::WeightUnit& unit, const at::Tensor& buffer) {
  return group_.all_gather(buffer, unit.part());
}

}  // namespace lorikeet::parallel
