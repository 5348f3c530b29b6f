#pragma once

namespace lorikeet::ops {

enum class Activation {
  kSilu,      ///< x sigmoid(x)
  kGeluTanh,  ///< GELU by tanh
  kGelu,      ///< GELU by erf
  /// gpt-oss's function of gate and up, which is no product of up and a function of the gate, and so only
  /// there as a gated one: (u + 1) g sigmoid(1.702 g) with g = min(gate, 7), u = min(max(up, -7), 7).
  /// Gradients are those of g and u where these are gate and up, and 0 where they aren't. Source:
  /// transformers' GptOssExperts._apply_gate.
  kClampedSwiglu,
};

/// Of kClampedSwiglu.
inline constexpr double kSwigluLimit = 7, kSwigluAlpha = 1.702;

}  // namespace lorikeet::ops
