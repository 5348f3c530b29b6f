#include "train/flops.h"

#include <algorithm>
#include <vector>

#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::train;
using namespace lorikeet::test;

namespace {

// A multiply-add of an [m, k] by [k, n] product counts two.
double gemm(double m, double k, double n) { return 2 * m * k * n; }

}  // namespace

TEST_CASE("the formula equals the sum over a model's matrix products") {
  // Two layers of hidden 16, 4 heads and 2 key heads of 8, MLP of 24, vocabulary 50, rank 3 on all
  // projections; sequences of 5 and 3 tokens, 6 of the 8 rows with a label.
  const double tokens = 8, labels = 6, rank = 3;
  struct Projection {
    double in, out;
  };
  const std::vector<Projection> layer{{16, 32}, {16, 16}, {16, 16}, {32, 16}, {16, 24}, {16, 24}, {24, 16}};
  double expected = 0, linear = 0, adapter = 0, output_linear = 0, output_adapter = 0;
  for (int l = 0; l < 2; ++l) {
    for (std::size_t i = 0; i < layer.size(); ++i) {
      const Projection& p = layer[i];
      const bool output_rows = l == 1 && i >= 3;  // behind the last attention: rows with a label
      const double rows = output_rows ? labels : tokens;
      (output_rows ? output_linear : linear) += p.in * p.out;
      (output_rows ? output_adapter : adapter) += rank * (p.in + p.out);
      expected += gemm(rows, p.in, p.out);  // x W^T
      expected += gemm(rows, p.out, p.in);  // dy W
      const double down = gemm(rows, p.in, rank), up = gemm(rows, rank, p.out);
      expected += 3 * (down + up);  // forward, input gradient, weight gradient
    }
    for (const double s : {5.0, 3.0}) {
      // q k^T and p v of 4 heads over half of the square, forward, and twice that in backward.
      expected += 3 * 4 * (gemm(s, 8, s) + gemm(s, s, 8)) / 2;
    }
  }
  expected += gemm(labels, 16, 50) + gemm(labels, 50, 16);  // the head and its input gradient

  const nn::ModelShape shape{.layers = 2,
                             .hidden_size = 16,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 8,
                             .intermediate_size = 24,
                             .vocab_size = 50,
                             .layer_linear_parameters = static_cast<std::int64_t>(linear + output_linear),
                             .output_row_parameters = static_cast<std::int64_t>(output_linear)};
  const StepSize size{.tokens = 8, .label_tokens = 6, .attention_squares = 2 * (25 + 9)};
  CHECK(step_flops(shape,
                   {.trained = static_cast<std::int64_t>(adapter + output_adapter),
                    .output_trained = static_cast<std::int64_t>(output_adapter)},
                   size) == Approx(expected).epsilon(1e-12));
}

TEST_CASE("attention past a window counts the pairs that it sees") {
  std::vector<nn::DecoderLayerSpec> layers(5);
  for (nn::DecoderLayerSpec& layer : layers) layer.attention.layout = {4, 2, 8};
  for (const std::size_t windowed : {0, 1, 3}) layers[windowed].attention.options.window = 4;
  const AttentionSquares squares(layers, {.heads = 4, .head_dim = 8});
  for (const std::int64_t length : {1, 3, 4, 5, 11}) {
    CAPTURE(length);
    std::int64_t seen = 0;  // pairs that a layer with the window sees
    for (std::int64_t i = 0; i < length; ++i) seen += std::min<std::int64_t>(i + 1, 4);
    // Like s^2, which stands for s (s + 1) / 2 pairs: without the last few of the diagonal.
    CHECK(squares.of(length) == 2 * length * length + 3 * (2 * seen - std::min<std::int64_t>(length, 4)));
  }
}

TEST_CASE("a layer with wider heads than the shape's counts so many times more pairs") {
  std::vector<nn::DecoderLayerSpec> layers(2);
  layers[0].attention.layout = {4, 2, 8};
  layers[1].attention.layout = {4, 1, 12};
  CHECK(AttentionSquares(layers, {.heads = 4, .head_dim = 8}).of(10) == 100 + 150);
}

TEST_CASE("latent attention counts keys and values as wide as they are, not what heads are filled up by") {
  std::vector<nn::DecoderLayerSpec> layers(2);
  const ops::LatentLayout layout{.heads = 4, .plain_dim = 8, .rotary_dim = 4, .value_dim = 6};
  for (nn::DecoderLayerSpec& layer : layers) {
    layer.attention.layout = layout.padded();
    layer.attention.latent = nn::LatentSpec{.layout = layout};
  }
  // Scores of 12 and sums of 6, instead of 12 for both.
  CHECK(AttentionSquares(layers, {.heads = 4, .head_dim = 12}).of(10) == 2 * 75);
  CHECK(AttentionSquares(layers, {.heads = 4, .head_dim = 9}).of(10) == 2 * 100);
}

TEST_CASE("factors without a gradient count their forward and input gradient") {
  const StepSize tokens{.tokens = 8};
  const nn::ModelShape shape;
  CHECK(step_flops(shape, {.frozen = 300}, tokens) == 2 * gemm(8, 300, 1));
  CHECK(step_flops(shape, {.trained = 300}, tokens) == 3 * gemm(8, 300, 1));
  CHECK(recomputed_flops({.shape = shape}, {.trained = 300, .frozen = 200}, tokens,
                         config::ActivationCheckpointing::kFull) == gemm(8, 500, 1));
  // Queries of 24 inputs and 32 outputs in three layers, rank 2.
  const ToyLora toy({.rank = 2, .freeze_a = true, .target_modules = {"query"}});
  const AdapterSize size = adapter_size(toy.adapters, toy.model.spec());
  CHECK(size.frozen == 3 * 2 * 24);
  CHECK(size.trained == 3 * 2 * 32);
  CHECK(size.head + size.head_table == 0);
}

TEST_CASE("of the embedding and the head what is multiplied counts, and the head's part by label tokens") {
  // A table of 37 rows of 24.
  const auto of = [](const peft::LoraConfig& config, bool tied = false) {
    nn::CausalLMSpec spec = toy_spec();
    spec.shape.tied_head = tied;
    const ToyLora toy(config, fp32_policy(), {}, spec);
    return adapter_size(toy.adapters, toy.model.spec());
  };
  const AdapterSize adapters = of({.rank = 2, .target_modules = {"wte", "output"}});
  CHECK(adapters.trained == 2 * 24);  // of the embedding's
  CHECK(adapters.head == 2 * (24 + 37));
  CHECK(of({.rank = 2, .target_modules = {"query"}, .modules_to_save = {"output"}}).head_table == 37 * 24);
  CHECK(of({.rank = 2, .target_modules = {"query"}, .modules_to_save = {"wte"}}).head_table == 0);
  CHECK(of({.rank = 2, .target_modules = {"query"}, .modules_to_save = {"wte"}, .ensure_weight_tying = true},
           true)
            .head_table == 37 * 24);
  const StepSize tokens{.tokens = 8, .label_tokens = 5};
  const nn::ModelShape shape;
  CHECK(step_flops(shape, {.head = 300}, tokens) == 3 * gemm(5, 300, 1));
  CHECK(step_flops(shape, {.head_table = 300}, tokens) == gemm(5, 300, 1));
}

TEST_CASE("what checkpointing adds is the layers' forward: half of the linear part, a third of the others") {
  const nn::ModelShape shape{.layers = 2,
                             .hidden_size = 16,
                             .heads = 4,
                             .head_dim = 8,
                             .vocab_size = 50,
                             .layer_linear_parameters = 5000};
  const StepSize size{.tokens = 8, .label_tokens = 6, .attention_squares = 34};
  const double linear = step_flops(shape, {}, {.tokens = 8});
  const double adapter = step_flops(shape, {.trained = 300}, {.tokens = 8}) - linear;
  const double attention = step_flops(shape, {}, {.attention_squares = 34});
  CHECK(recomputed_flops({.shape = shape}, {.trained = 300}, size, config::ActivationCheckpointing::kFull) ==
        Approx(linear / 2 + adapter / 3 + attention / 3));
  CHECK(recomputed_flops({.shape = shape}, {.trained = 300}, size, config::ActivationCheckpointing::kNone) ==
        0);
}

TEST_CASE("what recomputing MLPs adds is the products of gate and up, and of their adapters") {
  const ToyLora toy({.rank = 2});
  const nn::CausalLMSpec& spec = toy.model.spec();
  const AdapterSize adapter = adapter_size(toy.adapters, spec);
  double expected = 0;
  for (const auto& layer : spec.layers) {
    const auto hidden = layer.mlp.hidden_size, inner = layer.mlp.intermediate_size;
    const double rows = layer.index == 2 ? 5 : 8;  // of the last layer those with a label
    expected += 2 * (gemm(rows, hidden, inner) + gemm(rows, hidden, 2) + gemm(rows, 2, inner));
  }
  CHECK(recomputed_flops(spec, adapter, {.tokens = 8, .label_tokens = 5, .attention_squares = 99},
                         config::ActivationCheckpointing::kMlp) == expected);
}

TEST_CASE("of an adapter those factors count by label tokens that lie behind the last layer's attention") {
  // Rank 2 with a frozen A.
  const ToyLora toy({.rank = 2, .freeze_a = true, .target_modules = {"query", "dense", "w1", "w2"}});
  const AdapterSize size = adapter_size(toy.adapters, toy.model.spec());
  const nn::DecoderLayerSpec& layer = toy.model.spec().layers.back();
  const auto hidden = layer.mlp.hidden_size, inner = layer.mlp.intermediate_size,
             heads = layer.attention.layout.heads * layer.attention.layout.head_dim;
  CHECK(size.output_frozen == 2 * (heads + hidden + inner));
  CHECK(size.output_trained == 2 * (hidden + inner + hidden));
  CHECK(size.output_gate_up == 2 * (hidden + inner));
  CHECK(size.trained == 3 * (size.output_trained + 2 * heads));
  CHECK(size.frozen == 3 * (size.output_frozen + 2 * hidden));
}

TEST_CASE("of experts those count that a token passes") {
  // Two layers of hidden 16, 4 heads and 2 key heads of 8, five experts of 6 of which a token passes two.
  nn::CausalLMSpec spec;
  for (std::int64_t i = 0; i < 2; ++i) {
    nn::DecoderLayerSpec layer{.index = i};
    layer.experts =
        nn::ExpertsSpec{.hidden_size = 16, .intermediate_size = 6, .count = 5, .router = {.per_token = 2}};
    spec.layers.push_back(layer);
  }
  const std::int64_t qkv = 16 * (32 + 16 + 16), output = 32 * 16;
  const nn::ExpertsSpec& experts = *spec.layers[0].experts;
  REQUIRE(experts.parameters() == 16 * 5 + 5 * 3 * 16 * 6);
  spec.shape = {.layers = 2,
                .hidden_size = 16,
                .heads = 4,
                .head_dim = 8,
                .vocab_size = 50,
                .layer_linear_parameters = 2 * (qkv + output + experts.parameters()),
                .idle_expert_parameters = 2 * experts.parameters_of(3),
                .output_row_parameters = output + experts.parameters() - experts.parameters_of(3)};

  const double tokens = 8, labels = 5;
  double products = 0, gate_up = 0;             // of a forward
  for (const double rows : {tokens, labels}) {  // behind the last attention those with a label
    products += gemm(tokens, 16, 32) + 2 * gemm(tokens, 16, 16);
    products += gemm(rows, 32, 16) + gemm(rows, 16, 5);  // o and the router
    products += 2 * (2 * gemm(rows, 16, 6) + gemm(rows, 6, 16));
    gate_up += 2 * 2 * gemm(rows, 16, 6);
  }
  const double attention = 2 * 4 * (gemm(8, 8, 8) + gemm(8, 8, 8)) / 2;  // of one sequence in two layers
  const StepSize size{.tokens = 8, .label_tokens = 5, .attention_squares = 2 * 8 * 8};
  CHECK(step_flops(spec.shape, {}, size) == 2 * products + 3 * attention + 2 * gemm(labels, 16, 50));
  using Grade = config::ActivationCheckpointing;
  CHECK(recomputed_flops(spec, {}, size, Grade::kMlp) == gate_up);
  CHECK(recomputed_flops(spec, {}, size, Grade::kFull) == products + attention);
}

TEST_CASE("a shared expert's parameters and its gate's are passed by every token") {
  // One layer of hidden 16; five experts of 6 of which a token passes two, and a shared one of 7.
  nn::CausalLMSpec spec;
  nn::DecoderLayerSpec layer{.index = 0};
  layer.experts = nn::ExpertsSpec{.prefix = "mlp",
                                  .hidden_size = 16,
                                  .intermediate_size = 6,
                                  .count = 5,
                                  .router = {.per_token = 2},
                                  .shared = nn::SharedExpertSpec{.intermediate_size = 7}};
  spec.layers.push_back(layer);
  const nn::ExpertsSpec& experts = *spec.layers[0].experts;
  CHECK(experts.parameters() == 16 * 5 + 5 * 3 * 16 * 6 + 3 * 16 * 7 + 16);
  CHECK(experts.parameters_of(3) == 3 * 3 * 16 * 6);
  spec.layers[0].experts->shared->gate.clear();
  CHECK(experts.parameters() == 16 * 5 + 5 * 3 * 16 * 6 + 3 * 16 * 7);
  const StepSize size{.tokens = 8, .label_tokens = 5};
  CHECK(recomputed_flops(spec, {}, size, config::ActivationCheckpointing::kMlp) ==
        2 * 2 * gemm(5, 16, 6) + 2 * gemm(5, 16, 7));
  const TokenShares shares(spec);
  CHECK(shares.of("mlp.experts.3.down_proj") == Approx(0.4));
  CHECK(shares.of("mlp.shared_expert.down_proj") == 1);
}

TEST_CASE("an adapter on a shared expert counts whole, by label tokens in the last layer") {
  nn::CausalLMSpec spec = toy_forms_spec();
  while (!spec.layers.back().experts) spec.layers.pop_back();
  const ToyLora toy({.rank = 2, .target_modules = {"shared.w1", "shared.w2"}}, fp32_policy(), {}, spec);
  const AdapterSize size = adapter_size(toy.adapters, toy.model.spec());
  CHECK(size.output_trained == 2 * 2 * (24 + 8));
  CHECK(size.output_gate_up == 2 * (24 + 8));
  CHECK(size.trained == size.output_trained);
}

TEST_CASE(
    "an adapter on experts' parameters counts as far as a token passes it, by label tokens in the last "
    "layer") {
  nn::CausalLMSpec spec = toy_forms_spec();
  while (!spec.layers.back().experts) spec.layers.pop_back();
  // As in Mixtral, whose files call the block otherwise.
  spec.layers.back().experts->stacks.prefix = "transformer.h.4.mlp";
  const ToyLora toy({.rank = 2, .target_modules = {}, .target_parameters = {"gate_up_proj", "down_proj"}},
                    fp32_policy(), {}, spec);
  const AdapterSize size = adapter_size(toy.adapters, toy.model.spec());
  // Two of three experts, rounded a tensor: A [2, 24] and B [20, 2], A [2, 10] and B [24, 2].
  CHECK(size.output_gate_up == 3 * (32 + 27));
  CHECK(size.output_trained == 3 * (32 + 27 + 13 + 32));
  CHECK(size.trained == size.output_trained);
}

TEST_CASE("an adapter beside experts counts by label tokens where it is on the last layer's o") {
  nn::CausalLMSpec spec = toy_forms_spec();
  while (!spec.layers.back().experts) spec.layers.pop_back();
  const ToyLora toy({.rank = 2, .target_modules = {"query", "dense"}}, fp32_policy(), {}, spec);
  const AdapterSize size = adapter_size(toy.adapters, toy.model.spec());
  const nn::AttentionSpec& attention = toy.model.spec().layers.back().attention;
  CHECK(size.output_trained == 2 * (attention.layout.heads * attention.layout.head_dim + 24));
  CHECK(size.output_gate_up == 0);
}

TEST_CASE("counts beyond 32 bits don't overflow") {
  const nn::ModelShape shape{.layers = 80,
                             .hidden_size = 8192,
                             .heads = 64,
                             .head_dim = 128,
                             .vocab_size = 128256,
                             .layer_linear_parameters = 68'451'041'280};
  CHECK(step_flops(shape, {}, {.tokens = 1'000'000}) == Approx(4 * 68451041280e6));
}
