#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "peft/adapter_contents.h"

namespace lorikeet::test {

struct RandomModule {
  std::string name;
  std::int64_t out = 10, in = 8, rank = 3;
  double alpha = 6;
};

/// An adapter with random values that bf16 holds, targeted by whole names.
inline peft::AdapterContents random_adapter(std::uint64_t seed, const std::vector<RandomModule>& modules,
                                            DType dtype = DType::kF32, bool use_rslora = false) {
  at::manual_seed(seed);
  peft::AdapterContents adapter{.base_model = "base", .dtype = dtype};
  adapter.config.target_modules.clear();
  adapter.config.use_rslora = use_rslora;
  const auto values = [](at::IntArrayRef shape) {
    return at::randn(shape, at::kFloat).to(at::kBFloat16).to(at::kDouble);
  };
  for (const RandomModule& one : modules) {
    const auto rank = static_cast<double>(one.rank);
    peft::AdapterModule module{.alpha = one.alpha};
    module.update = {values({one.rank, one.in}), values({one.out, one.rank}),
                     one.alpha / (use_rslora ? std::sqrt(rank) : rank)};
    adapter.config.target_modules.push_back(one.name);
    adapter.modules[one.name] = module;
  }
  return adapter;
}

inline at::Tensor dense(const peft::AdapterModule& module) {
  return at::mm(module.update.b, module.update.a) * module.update.scale;
}

inline double relative_distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

}  // namespace lorikeet::test
