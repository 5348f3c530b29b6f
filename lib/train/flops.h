#pragma once

#include <cstdint>
#include <span>

#include "nn/model_shape.h"

namespace lorikeet::train {

/// Floating-point operations of one LoRA training step (a multiply-add counts two), forward and backward,
/// without recomputation:
///   4 x frozen linear parameters x tokens            forward and input gradient; frozen weights get no
///   gradient,
///                                                     and the embedding is a lookup
/// + 4 x hidden x vocabulary x label tokens            the head sees only rows that have a label
/// + 6 x adapter parameters x tokens                   forward, input and weight gradient
/// + 3 x 2 x layers x heads x head_dim x s^2           summed over the real causal sequences of length s
/// The usual 6N counts a weight gradient that LoRA never computes.
struct StepSize {
  std::int64_t tokens = 0;
  std::int64_t label_tokens = 0;
  std::int64_t squared_lengths = 0;  ///< sum of s^2
};

double step_flops(const nn::ModelShape& shape, std::int64_t adapter_parameters, const StepSize& size);

/// What activation checkpointing adds: the layers' forward once more.
double recomputed_flops(const nn::ModelShape& shape, std::int64_t adapter_parameters, const StepSize& size);

}  // namespace lorikeet::train
