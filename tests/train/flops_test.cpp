#include "train/flops.h"

#include <vector>

#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::train;

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
  double expected = 0, linear = 0, adapter = 0;
  for (int l = 0; l < 2; ++l) {
    for (const Projection& p : layer) {
      linear += p.in * p.out;
      adapter += rank * (p.in + p.out);
      expected += gemm(tokens, p.in, p.out);  // x W^T
      expected += gemm(tokens, p.out, p.in);  // dy W
      const double down = gemm(tokens, p.in, rank), up = gemm(tokens, rank, p.out);
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
                             .layer_linear_parameters = static_cast<std::int64_t>(linear)};
  const StepSize size{.tokens = 8, .label_tokens = 6, .squared_lengths = 25 + 9};
  CHECK(step_flops(shape, static_cast<std::int64_t>(adapter), size) == Approx(expected).epsilon(1e-12));
}

TEST_CASE("what checkpointing adds is the layers' forward: half of the linear part, a third of the others") {
  const nn::ModelShape shape{.layers = 2,
                             .hidden_size = 16,
                             .heads = 4,
                             .head_dim = 8,
                             .vocab_size = 50,
                             .layer_linear_parameters = 5000};
  const StepSize size{.tokens = 8, .label_tokens = 6, .squared_lengths = 34};
  const double linear = step_flops(shape, 0, {.tokens = 8});
  const double adapter = step_flops(shape, 300, {.tokens = 8}) - linear;
  const double attention = step_flops(shape, 0, {.squared_lengths = 34});
  CHECK(recomputed_flops(shape, 300, size) == Approx(linear / 2 + adapter / 3 + attention / 3));
}

TEST_CASE("counts beyond 32 bits don't overflow") {
  const nn::ModelShape shape{.layers = 80,
                             .hidden_size = 8192,
                             .heads = 64,
                             .head_dim = 128,
                             .vocab_size = 128256,
                             .layer_linear_parameters = 68'451'041'280};
  CHECK(step_flops(shape, 0, {.tokens = 1'000'000}) == Approx(4 * 68451041280e6));
}
