#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "nn/causal_lm.h"
#include "ops/attention/kernel_choice.h"
#include "peft/lora.h"
#include "precision/policy.h"
#include "train/flops.h"

namespace lorikeet::plan {

/// What optimizer steps ask of a GPU, by what bounds it. All without recomputation.
struct CardLoad {
  double product_flops = 0;      ///< of matrix products in the compute dtype
  double float8_flops = 0;       ///< of those in fp8
  double attention_flops = 0;    ///< of real pairs of a query and a key
  double attention_filling = 1;  ///< so many times of it kernels compute, where heads are filled up by zeros
  double recurrence_flops = 0;   ///< of gated delta nets' rule and of state spaces, in fp32
  double moved_bytes = 0;        ///< of activations, that kernels read and write in the card's memory

  /// train::step_flops.
  double flops() const { return product_flops + float8_flops + attention_flops + recurrence_flops; }
};

/// Of one step, or of several together.
CardLoad card_load(const nn::CausalLMSpec& spec, const peft::LoraAdapters& adapters,
                   const train::StepSize& size, const precision::Policy& policy);

/// Bytes that decoding a quantised base once reads and writes; 0 for a base that is stored as it is computed.
/// Every pass does, but with products in fp8 forward doesn't.
double decoded_bytes(const nn::CausalLMSpec& spec, double stored_bytes, const precision::Policy& policy);

/// What a GPU sustains, operations and bytes a second.
struct CardRates {
  double products = 0, float8 = 0, attention = 0, recurrence = 0;
  double memory = 0;    ///< read and written
  double decoding = 0;  ///< the same, by what decodes quantised weights
};

/// Shares of a card's data sheet (dense products in the compute dtype, memory) that were measured on an H200
/// (benchmarks/results/card.md); for attention on other cards than Hopper's, and for recurrences, they are
/// assumed.
CardRates card_rates(double peak_flops, double peak_bytes_per_second, int capability,
                     ops::AttentionKernel attention);
/// The same of a model whose layers' attention is computed by several kernels, each with its part of the
/// operations of all attention. With no part above 0 any rate will do.
CardRates card_rates(double peak_flops, double peak_bytes_per_second, int capability,
                     const std::vector<std::pair<ops::AttentionKernel, double>>& attention);

double card_seconds(const CardLoad& load, const CardRates& rates);

/// What a layer's kernels take in a pass beside their work: filling and emptying the card, which every
/// micro-batch does. Measured on an H200: a micro-batch more in a step took 8.2 ms with 28 layers, 11.3 ms
/// with 32.
inline constexpr double kCardSecondsPerLayer = 0.15e-3;
/// What the host takes to launch them, at least: 94 kernels a layer, 10 us each, half of them in a pass.
inline constexpr double kHostSecondsPerLayer = 94 * 10e-6 / 2;
/// What it takes besides for experts, on average over the layers, 10 us a launch (assumed): two of each
/// expert in a pass, or, with the products of all `at_once`, those that move rows: 20 more in both passes
/// than an MLP has (benchmarks/results/launches.md). 0 for a model without experts.
double experts_host_seconds_per_layer(const nn::CausalLMSpec& spec, bool at_once);

/// The usual micro-batch on such a card: kUsualMicroTokensCuda, or twice that for models so small that
/// filling and emptying the card takes more than 5.5% of the time of its products. Twice the tokens were 6%
/// faster with 0.6B on an H200, and 3% with 4B. The usual number too where its rate isn't known. On a CPU
/// kUsualMicroTokensCpu.
std::int64_t usual_micro_tokens(const nn::ModelShape& shape, at::DeviceType device,
                                std::optional<double> peak_flops);

}  // namespace lorikeet::plan
