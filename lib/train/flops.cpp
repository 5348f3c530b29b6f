#include "train/flops.h"

namespace lorikeet::train {
namespace {

double d(std::int64_t n) { return static_cast<double>(n); }

}  // namespace

double step_flops(const nn::ModelShape& shape, std::int64_t adapter_parameters, const StepSize& size) {
  const double linear = 4.0 * d(shape.layer_linear_parameters) * d(size.tokens);
  const double head = 4.0 * d(shape.hidden_size) * d(shape.vocab_size) * d(size.label_tokens);
  const double adapter = 6.0 * d(adapter_parameters) * d(size.tokens);
  const double attention =
      6.0 * d(shape.layers) * d(shape.heads) * d(shape.head_dim) * d(size.squared_lengths);
  return linear + head + adapter + attention;
}

double recomputed_flops(const nn::ModelShape& shape, std::int64_t adapter_parameters, const StepSize& size) {
  const double linear = 2.0 * d(shape.layer_linear_parameters) * d(size.tokens);
  const double adapter = 2.0 * d(adapter_parameters) * d(size.tokens);
  const double attention =
      2.0 * d(shape.layers) * d(shape.heads) * d(shape.head_dim) * d(size.squared_lengths);
  return linear + adapter + attention;
}

}  // namespace lorikeet::train
