#include "nn/pass_state.h"

#include <ATen/ATen.h>

#include <utility>

namespace lorikeet::nn {

void SharedKeys::add_gradients(std::int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  at::Tensor& gradient = entries_.at(layer).gradient;
  const at::Tensor added = at::cat({k.flatten(1), v.flatten(1)}, 1);
  if (gradient.defined()) {
    gradient.add_(added);
  } else {
    gradient = added;
  }
}

at::Tensor SharedKeys::take_gradient(std::int64_t layer) {
  return std::exchange(entries_.at(layer).gradient, {});
}

}  // namespace lorikeet::nn
