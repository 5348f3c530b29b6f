#pragma once

#include <functional>

#include "nn/norm.h"

namespace lorikeet::nn {

/// Activation checkpointing (Chen et al. 2016): runs `layer` without keeping what its backward needs, and
/// runs it again in backward. Trades one more forward for all activations but the layer's input.
///
/// `layer` must be a pure function of the stream (dropout masks are: they are keyed, not drawn); adapters'
/// gradients are added by its operators during the second run's backward. `anchor` is any leaf that requires
/// grad: it keeps the node in the graph where the stream itself needs no gradient yet.
Hidden checkpointed(std::function<Hidden(Hidden)> layer, const Hidden& input, const at::Tensor& anchor);

}  // namespace lorikeet::nn
