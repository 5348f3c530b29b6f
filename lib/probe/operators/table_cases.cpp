#include <ATen/ATen.h>

#include "ops/adamw/adamw.h"
#include "ops/dtype.h"
#include "ops/embedding/embedding.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {
namespace {

Results lookup(const Place& place, std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kTokens = 90, kRank = 4;
  const ops::FrozenMatrix table = ops::frozen_matrix(place.normal({rows, width}, 1));
  const at::Tensor ids = place.ids(kTokens, rows), dy = place.normal({kTokens, width}, 2);
  const DType out = ops::from_torch(place.dtype);
  const ops::LoraProjection update{.out_begin = 0,
                                   .out_end = rows,
                                   .a = place.normal({kRank, width}, 3),
                                   .b = place.normal({rows, kRank}, 4),
                                   .grad_a = place.sums({kRank, width}),
                                   .grad_b = place.sums({rows, kRank}),
                                   .scale = 0.5};
  at::Tensor gradient = place.sums({rows, width});
  ops::embedding_backward(gradient, dy, ids, 2);
  const at::Tensor adapted = ops::lora_embedding(ids, table, update, out);
  ops::lora_embedding_backward(dy, ids, update);
  return {{"rows", ops::embedding(ids, table, out)},
          {"gradient of the table", gradient},
          {"rows with LoRA", adapted},
          {"gradient of A", update.grad_a},
          {"gradient of B", update.grad_b}};
}

Results loss(const Place& place, std::int64_t vocabulary, const ops::CrossEntropyOptions& options) {
  constexpr std::int64_t kLabels = 52, kWidth = 64, kRank = 4;
  const at::Tensor hidden = place.normal({kLabels, kWidth}, 1),
                   head = place.normal({vocabulary, kWidth}, 2, 0.3);
  const at::Tensor labels = place.ids(kLabels, vocabulary);
  const ops::LoraProjection adapter{.out_begin = 0,
                                    .out_end = vocabulary,
                                    .a = place.normal({kRank, kWidth}, 3, 0.1),
                                    .b = place.normal({vocabulary, kRank}, 4, 0.1),
                                    .grad_a = place.sums({kRank, kWidth}),
                                    .grad_b = place.sums({vocabulary, kRank}),
                                    .scale = 2};
  const at::Tensor head_gradient = place.sums({vocabulary, kWidth});
  const auto result = ops::linear_cross_entropy(hidden, head, {adapter}, labels, 0.5, options,
                                                /*hidden_gradient=*/true, head_gradient);
  return {{"loss", result.loss},
          {"gradient of the hidden states", result.hidden},
          {"gradient of A", adapter.grad_a},
          {"gradient of B", adapter.grad_b},
          {"gradient of the head", head_gradient},
          {"loss of each token", ops::token_nll(hidden, head, {adapter}, labels, options)}};
}

// Two steps; the state is fp32 beside a compute copy in the run's dtype.
Results optimizer(const Place& place, std::int64_t n, const ops::AdamWStep& step) {
  ops::AdamWState state{.values = place.wide_normal({n}, 1),
                        .gradients = place.sums({n}),
                        .exp_avg = place.sums({n}),
                        .exp_avg_sq = place.sums({n}),
                        .updates = at::zeros({}, at::TensorOptions(place.device).dtype(at::kFloat)),
                        .compute = at::empty({n}, at::TensorOptions(place.device).dtype(place.dtype)),
                        .statistics = place.wide()};
  Results results;
  for (const std::uint64_t seed : {2, 3}) {
    state.gradients.copy_(place.wide_normal({n}, seed));
    results.emplace_back("norm of the gradients", ops::adamw_step(state, step));
  }
  results.insert(results.end(), {{"values", state.values},
                                 {"first moment", state.exp_avg},
                                 {"second moment", state.exp_avg_sq},
                                 {"compute copy", state.compute},
                                 {"gradients afterwards", state.gradients}});
  return results;
}

}  // namespace

std::vector<OperatorCase> table_cases() {
  std::vector<OperatorCase> cases;
  for (const std::int64_t width : {40, 256}) {
    cases.push_back({"embedding", "37 rows of " + std::to_string(width),
                     [width](const Place& at) { return lookup(at, 37, width); }});
  }
  const auto add = [&](const std::string& form, std::int64_t vocabulary,
                       const ops::CrossEntropyOptions& options) {
    cases.push_back(
        {"linear cross-entropy", form, [=](const Place& at) { return loss(at, vocabulary, options); }});
  };
  add("vocabulary of 203, in chunks", 203, {.chunk_rows = 16});
  add("vocabulary of 5003", 5003, {});
  add("soft cap and scale", 203, {.soft_cap = 3, .scale = 0.7});
  for (const double clip : {0.0, 2.0}) {
    const ops::AdamWStep step{.lr = 0.01,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .clip_grad_norm = clip,
                              .gradient_scale = 8};
    for (const std::int64_t n : {5, 40003}) {
      cases.push_back({"AdamW", std::to_string(n) + (clip > 0 ? " elements, clipped" : " elements"),
                       [=](const Place& at) { return optimizer(at, n, step); }});
    }
  }
  return cases;
}

}  // namespace lorikeet::probe
