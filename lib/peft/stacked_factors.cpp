#include "peft/stacked_factors.h"

#include <ATen/ATen.h>

namespace lorikeet::peft {

at::Tensor stacked_a(const std::vector<at::Tensor>& experts) { return at::cat(experts, 0); }

at::Tensor stacked_b(const std::vector<at::Tensor>& experts) { return at::stack(experts, 2).flatten(1); }

at::Tensor expert_a(const at::Tensor& stacked, std::int64_t expert, std::int64_t count) {
  const std::int64_t rank = stacked.size(0) / count;
  return stacked.narrow(0, expert * rank, rank);
}

at::Tensor expert_b(const at::Tensor& stacked, std::int64_t expert, std::int64_t count) {
  return stacked.unflatten(1, {stacked.size(1) / count, count}).select(2, expert);
}

}  // namespace lorikeet::peft
