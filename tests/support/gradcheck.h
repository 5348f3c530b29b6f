#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lorikeet::test {

/// What gradcheck found: the largest |analytic - numeric| / (1 + |numeric|), and where.
struct GradcheckResult {
  double worst = 0;
  std::string where;
};

/// Compares the gradients that autograd gives for sum(f(inputs) * fixed weights) with central differences.
/// inputs: fp64 leaves that require grad; f returns one fp64 tensor of any shape. At most `probes` elements
/// of each input are tried, spread evenly. A central difference of step h = 1e-5 in fp64 is good to about
/// 1e-9.
inline GradcheckResult gradcheck(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f,
                                 std::vector<at::Tensor> inputs, std::int64_t probes = 64) {
  const auto out = f(inputs);
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(17);
  const auto weights = at::randn(out.sizes(), generator, out.options().requires_grad(false));
  const auto analytic = torch::autograd::grad({(out * weights).sum()}, inputs, {}, std::nullopt, false, true);
  const auto value = [&] {
    const at::NoGradGuard no_grad;
    return (f(inputs) * weights).sum().item<double>();
  };
  constexpr double kStep = 1e-5;
  GradcheckResult result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto flat = inputs[i].detach().view({-1});
    const auto gradient = analytic[i].defined() ? analytic[i].contiguous().view({-1}) : at::zeros_like(flat);
    const auto stride = std::max<std::int64_t>(1, flat.numel() / probes);
    for (std::int64_t at = 0; at < flat.numel(); at += stride) {
      double* element = flat.data_ptr<double>() + at;
      const double before = *element;
      *element = before + kStep;
      const double above = value();
      *element = before - kStep;
      const double below = value();
      *element = before;
      const double numeric = (above - below) / (2 * kStep);
      const double error = std::abs(gradient.data_ptr<double>()[at] - numeric) / (1 + std::abs(numeric));
      if (error >= result.worst) {
        result.worst = error;
        result.where = "input " + std::to_string(i) + ", element " + std::to_string(at);
      }
    }
  }
  return result;
}

/// An fp64 leaf that requires grad, standard normal, the same for the same seed.
inline at::Tensor leaf(at::IntArrayRef sizes, std::uint64_t seed) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::kDouble).requires_grad_(true);
}

}  // namespace lorikeet::test
