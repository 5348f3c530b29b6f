#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ops/attention/attention.h"

// The operators of lib/ops as cases: each computes from the same inputs on any device and in any dtype, so
// that what a device gives in a run's precision can be held against fp64 on the CPU, where operators run
// their references.
namespace lorikeet::probe {

/// Where a case computes, and in what.
struct Place {
  at::Device device;
  at::ScalarType rounded;  ///< what the inputs' numbers are rounded to
  at::ScalarType dtype;    ///< what holds them: `rounded`, or fp64 for the expected results

  /// fp32, or fp64 where that holds the numbers.
  at::ScalarType wide() const { return dtype == at::kDouble ? at::kDouble : at::kFloat; }
  /// Normal numbers times `scale`, the same for one seed at every place with this rounding.
  at::Tensor normal(at::IntArrayRef sizes, std::uint64_t seed, double scale = 1) const;
  /// The same in fp32 precision, held in wide().
  at::Tensor wide_normal(at::IntArrayRef sizes, std::uint64_t seed) const;
  /// Zeros that gradients are added to: [sizes] of wide().
  at::Tensor sums(at::IntArrayRef sizes) const;
  /// int64 ids [n], in [0, below), with repetitions.
  at::Tensor ids(std::int64_t n, std::int64_t below) const;
  /// Packed sequences, the s-th with the rows from ends[s] to ends[s + 1].
  ops::Sequences sequences(const std::vector<std::int32_t>& ends) const;
};

/// A named tensor that a case computed: "output", "gradient of x".
using Results = std::vector<std::pair<std::string, at::Tensor>>;

struct OperatorCase {
  std::string op;    ///< the operator's name in the table
  std::string form;  ///< options and shapes
  std::function<Results(const Place& place)> run;
  int least_capability = 0;  ///< of a GPU, 10 * major + minor; on lesser ones no run makes such a call
};

/// All cases, those of an operator after each other.
const std::vector<OperatorCase>& operator_cases();

/// The operators' names, each once, in the cases' order.
std::vector<std::string> operator_names();

// Parts of operator_cases().
std::vector<OperatorCase> norm_cases();  ///< norms, and those of queries and keys with rotary
std::vector<OperatorCase>
elementwise_cases();  ///< rotary, latent heads, activations, DoRA's columns, dropout
std::vector<OperatorCase> attention_cases();
std::vector<OperatorCase> sequence_cases();     ///< the gated delta rule, convolutions over packed sequences
std::vector<OperatorCase> state_space_cases();  ///< Mamba 2's state space
std::vector<OperatorCase> gate_cases();         ///< norms with gates, gates of rows and of their elements
std::vector<OperatorCase> product_cases();  ///< matrix products, linear layers with LoRA, quantised weights
std::vector<OperatorCase> expert_cases();   ///< rows and linear layers of mixtures of experts
std::vector<OperatorCase> table_cases();    ///< embedding, linear cross-entropy, AdamW

}  // namespace lorikeet::probe
