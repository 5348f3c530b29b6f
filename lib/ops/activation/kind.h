#pragma once

namespace lorikeet::ops {

/// x sigmoid(x); GELU by tanh; GELU by erf.
enum class Activation { kSilu, kGeluTanh, kGelu };

}  // namespace lorikeet::ops
