#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lorikeet::ops {

/// What a router makes of a token's logits.
enum class RouterScores { kSoftmax, kSigmoid };

/// How a router chooses: a token's experts are those of the largest scores, which weigh them.
struct RouterOptions {
  std::int64_t per_token = 1;  ///< k, at most the number of experts
  bool normalized = true;      ///< a token's weights are divided by their sum
  RouterScores scores = RouterScores::kSoftmax;
  double sum_eps = 0;  ///< of sigmoids: is added to the sum that weights are divided by
  /// Of softmax: a smaller sum is taken for this number (ERNIE 4.5), which the gradient takes no notice of.
  double least_sum = 0;
  double scale = 1;  ///< weights are multiplied by it in the end
  /// So many groups of equally many experts each, in the experts' order. A token's experts are chosen from
  /// the `groups_per_token` groups with the highest scores alone, which have at least `per_token` experts.
  std::int64_t groups = 1, groups_per_token = 1;
  /// A group's score is the sum of so many of its experts' scores, the highest, as they count for the choice:
  /// 2 in DeepSeek-V3, 1 in DeepSeek-V2.
  std::int64_t group_top = 1;

  /// Whether a token can't choose from all experts.
  bool limits_groups() const { return groups_per_token < groups; }
};

/// Which experts the T tokens of a batch go to, k each, and the order in which experts compute them: rows of
/// one expert follow each other, in the tokens' order.
struct Routing {
  at::Tensor experts;  ///< int64 [T, k], a token's experts, the best first
  at::Tensor weights;  ///< [T, k], fp32 (fp64 for fp64 logits)
  at::Tensor tokens;   ///< int64 [T * k], the token of each of the experts' rows
  at::Tensor places;   ///< int64 [T, k], the row of each token's experts
  /// int64 [experts], where the logits are: expert e computes the rows from ends[e - 1] (0 for the first) on.
  at::Tensor ends = {};
  /// [T, k], the weights before scale_weights multiplied them; undefined where it didn't.
  at::Tensor unscaled = {};
  mutable std::vector<std::int64_t> known_ends = {};  ///< host_ends', once they were asked for

  /// The ends on the host, which waits for a GPU the first time. A dry run takes experts to have equally many
  /// rows.
  const std::vector<std::int64_t>& host_ends() const;
};

/// How many times host_ends has made this thread wait for a GPU. Work in which it did can't be recorded
/// (DeviceGraph).
std::int64_t routing_waits();

/// Routes by logits [T, E], floating; scores in fp32 (fp64 for fp64). `choice_bias` [E], or undefined, is
/// added to the scores by which experts are chosen, and not to their weights. Ties go as at::topk has them.
/// Sources: Shazeer et al. 2017, arXiv:1701.06538; Jiang et al. 2024, arXiv:2401.04088 (Mixtral, whose
/// weights are normalised); Wang et al. 2024, arXiv:2408.15664 (the bias); DeepSeek-AI 2024, arXiv:2405.04434
/// (groups). Throws Error on logits, options or a bias that don't fit.
Routing route(const at::Tensor& logits, const RouterOptions& options, const at::Tensor& choice_bias = {});

/// Multiplies each weight by its expert's number of `scales` [experts], floating, in the weights' dtype
/// (Gemma 4). Throws Error on scales that don't fit.
void scale_weights(Routing& routing, const at::Tensor& scales);

/// The gradient of the logits [T, E], in their dtype, from that of the weights [T, k] times the weights,
/// scaled or not: the choice itself has none, and the scales are constants.
at::Tensor route_backward(const at::Tensor& weighted_gradient, const at::Tensor& logits,
                          const Routing& routing, const RouterOptions& options);

/// Whether rows are multiplied by the router's weights on the way between tokens and experts.
enum class RowWeights { kNone, kRouter };

/// The experts' rows [T * k, D] out of the tokens' x [T, D], each of them k times; weighted in fp32 (fp64 for
/// fp64), rounded once.
at::Tensor spread_rows(const at::Tensor& x, const Routing& routing, RowWeights weights);

/// Its transpose: [T, D], for each token the sum of its experts' rows [T * k, D], in fp32 (fp64 for fp64),
/// rounded once.
at::Tensor combine_rows(const at::Tensor& rows, const Routing& routing, RowWeights weights);

/// Values of the experts' rows [T * k] as those of each token's experts [T, k].
at::Tensor of_places(const at::Tensor& values, const Routing& routing);

/// The inner products of the rows of a and b [n, D], fp32 (fp64 for fp64) [n].
at::Tensor row_products(const at::Tensor& a, const at::Tensor& b);

namespace reference {

/// A whole block of experts by plain ATen calls, differentiable, on any device and in fp64: per token
///   sum over its experts e of weight_e down_e (silu(gate_e x) * up_e x).
/// choice_bias: [E], or undefined.
/// x: [T, D]; router: [E, D]; gate_up: [E, 2I, D], rows [gate | up]; down: [E, D, I].
at::Tensor gated_experts(const at::Tensor& x, const at::Tensor& router, const at::Tensor& gate_up,
                         const at::Tensor& down, const RouterOptions& options,
                         const at::Tensor& choice_bias = {});

}  // namespace reference
}  // namespace lorikeet::ops
