#include "probe/operators/cases.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace lorikeet::probe {
namespace {

at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions(at::kDouble));
}

}  // namespace

at::Tensor Place::normal(at::IntArrayRef sizes, std::uint64_t seed, double scale) const {
  return (random(sizes, seed) * scale).to(rounded).to(dtype).to(device);
}

at::Tensor Place::wide_normal(at::IntArrayRef sizes, std::uint64_t seed) const {
  return random(sizes, seed).to(at::kFloat).to(wide()).to(device);
}

at::Tensor Place::sums(at::IntArrayRef sizes) const {
  return at::zeros(sizes, at::TensorOptions(wide()).device(device));
}

at::Tensor Place::ids(std::int64_t n, std::int64_t below) const {
  return at::arange(n, at::kLong).mul(7).remainder(below).to(device);
}

ops::Sequences Place::sequences(const std::vector<std::int32_t>& ends) const {
  ops::Sequences packed{.cu_seqlens = ends};
  for (std::size_t s = 0; s + 1 < ends.size(); ++s)
    packed.max_seqlen = std::max<std::int64_t>(packed.max_seqlen, ends[s + 1] - ends[s]);
  packed.cu_seqlens_device = at::tensor(ends, at::kInt).to(device);
  return packed;
}

const std::vector<OperatorCase>& operator_cases() {
  static const std::vector<OperatorCase> all = [] {
    std::vector<OperatorCase> cases;
    for (auto* const part : {&norm_cases, &elementwise_cases, &attention_cases, &sequence_cases,
                             &state_space_cases, &gate_cases, &product_cases, &expert_cases, &table_cases}) {
      for (OperatorCase& one : part()) cases.push_back(std::move(one));
    }
    return cases;
  }();
  return all;
}

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (const OperatorCase& one : operator_cases()) {
    if (names.empty() || names.back() != one.op) names.push_back(one.op);
  }
  return names;
}

}  // namespace lorikeet::probe
