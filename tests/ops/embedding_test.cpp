#include "ops/embedding/embedding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "support/catch.h"
#include "support/gradcheck.h"
#include "support/tolerance.h"

using namespace lorikeet::ops;
using lorikeet::Error;
using lorikeet::test::leaf;
using lorikeet::test::relative_distance;

namespace {

constexpr std::int64_t kRows = 11, kWidth = 6, kRank = 3;

// Some ids more than once, some never.
at::Tensor ids() { return at::tensor({4, 0, 4, 10, 7, 4, 0}, at::TensorOptions(at::kLong)); }

struct Update {
  at::Tensor a, b, grad_a, grad_b;
  bool reached = false;
  LoraProjection projection() { return {0, kRows, a, b, grad_a, grad_b, 1.5, &reached}; }
};

Update update(at::ScalarType dtype = at::kDouble) {
  const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  return {leaf({kRank, kWidth}, 1).detach().to(dtype), leaf({kRows, kRank}, 2).detach().to(dtype),
          at::zeros({kRank, kWidth}, at::TensorOptions(wide)),
          at::zeros({kRows, kRank}, at::TensorOptions(wide))};
}

}  // namespace

TEST_CASE("a lookup's gradient adds up by id, in every dtype that gradients and rows have") {
  for (const auto from : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto to = from == at::kDouble ? at::kDouble : at::kFloat;
    CAPTURE(from);
    const at::Tensor dy = leaf({ids().numel(), kWidth}, 3).detach().to(from);
    at::Tensor gradient = at::ones({kRows, kWidth}, at::TensorOptions(to));
    embedding_backward(gradient, dy, ids(), 0.5);
    at::Tensor expected = at::ones({kRows, kWidth}, at::TensorOptions(at::kDouble));
    expected.index_add_(0, ids(), dy.to(at::kDouble) * 0.5);
    CHECK(relative_distance(gradient, expected) < (to == at::kDouble ? 1e-15 : 1e-6));
    CHECK(at::equal(gradient[1], at::ones({kWidth}, gradient.options())));
  }
}

TEST_CASE("a lookup's gradient is the same bits on any number of threads, and for rows with gaps") {
  const at::Tensor many = at::randint(40, {5000}, at::TensorOptions(at::kLong));
  const at::Tensor wide = at::randn({5000, 2 * kWidth});
  const at::Tensor dy = wide.slice(1, 0, kWidth);
  const int threads = at::get_num_threads();
  at::Tensor one = at::zeros({40, kWidth}), two = at::zeros({40, kWidth});
  at::set_num_threads(1);
  embedding_backward(one, dy, many);
  at::set_num_threads(2);
  embedding_backward(two, dy.contiguous(), many);
  at::set_num_threads(threads);
  CHECK(at::equal(one, two));
  // Rows of one id are added in order: a sum that rounds differently in another.
  at::Tensor ordered = at::zeros({1, 1});
  embedding_backward(ordered, at::tensor({1e8F, 1.0F, -1e8F}).view({3, 1}),
                     at::zeros({3}, at::TensorOptions(at::kLong)));
  CHECK(ordered.item<float>() == 0.0F);
}

TEST_CASE("an embedding with an adapter is a lookup in the changed table, and so are its gradients") {
  Update u = update();
  const at::Tensor table = leaf({kRows, kWidth}, 4).detach();
  const at::Tensor a = u.a.clone().requires_grad_(), b = u.b.clone().requires_grad_();
  const at::Tensor expected = at::index_select(table + 1.5 * at::mm(b, a), 0, ids());
  const at::Tensor dy = leaf({ids().numel(), kWidth}, 5).detach();
  (expected * dy).sum().backward();

  const at::Tensor y = lora_embedding(ids(), frozen_matrix(table), u.projection(), lorikeet::DType::kF64);
  CHECK(relative_distance(y, expected.detach()) < 1e-14);
  lora_embedding_backward(dy, ids(), u.projection());
  CHECK(relative_distance(u.grad_a, a.grad()) < 1e-14);
  CHECK(relative_distance(u.grad_b, b.grad()) < 1e-14);
  CHECK(u.reached);
}

TEST_CASE(
    "positions of the padding id give a table, and an adapter's row of it, no gradient, as in PyTorch") {
  constexpr std::int64_t kPadding = 4;
  const at::Tensor dy = leaf({ids().numel(), kWidth}, 5).detach();
  const at::Tensor table = leaf({kRows, kWidth}, 4);
  (at::embedding(table, ids(), kPadding) * dy).sum().backward();
  at::Tensor gradient = at::zeros({kRows, kWidth}, dy.options());
  embedding_backward(gradient, dy, ids(), 1, kPadding);
  CHECK(relative_distance(gradient, table.grad()) < 1e-15);
  CHECK(at::equal(gradient[kPadding], at::zeros({kWidth}, dy.options())));

  Update u = update();
  const at::Tensor a = u.a.clone().requires_grad_(), b = u.b.clone().requires_grad_();
  (1.5 * at::mm(at::embedding(b, ids(), kPadding), a) * dy).sum().backward();
  lora_embedding_backward(dy, ids(), u.projection(), kPadding);
  CHECK(relative_distance(u.grad_a, a.grad()) < 1e-14);
  CHECK(relative_distance(u.grad_b, b.grad()) < 1e-14);
}

TEST_CASE("an adapter on an embedding in bf16 is the fp32 one, to bf16's digits") {
  Update half = update(at::kBFloat16), full = update(at::kFloat);
  full.a = half.a.to(at::kFloat);
  full.b = half.b.to(at::kFloat);
  const at::Tensor table = leaf({kRows, kWidth}, 4).detach().to(at::kBFloat16);
  const at::Tensor dy = leaf({ids().numel(), kWidth}, 5).detach().to(at::kBFloat16);
  const at::Tensor y = lora_embedding(ids(), frozen_matrix(table), half.projection(), lorikeet::DType::kBF16);
  const at::Tensor expected =
      lora_embedding(ids(), frozen_matrix(table.to(at::kFloat)), full.projection(), lorikeet::DType::kF32);
  CHECK(y.scalar_type() == at::kBFloat16);
  CHECK(relative_distance(y, expected) < 1e-2);
  lora_embedding_backward(dy, ids(), half.projection());
  lora_embedding_backward(dy.to(at::kFloat), ids(), full.projection());
  CHECK(half.grad_b.scalar_type() == at::kFloat);
  CHECK(relative_distance(half.grad_a, full.grad_a) < 1e-2);
  CHECK(relative_distance(half.grad_b, full.grad_b) < 1e-2);
}

TEST_CASE("ids and rows that don't fit a table are errors") {
  at::Tensor gradient = at::zeros({kRows, kWidth});
  const at::Tensor dy = at::ones({1, kWidth});
  const auto of = [](std::int64_t id) { return at::full({1}, id, at::TensorOptions(at::kLong)); };
  CHECK_THROWS_WITH(embedding_backward(gradient, dy, of(kRows)), Catch::Contains("11 of 11"));
  CHECK_THROWS_WITH(embedding_backward(gradient, dy, of(-1)), Catch::Contains("-1 of 11"));
  CHECK_THROWS_AS(embedding_backward(gradient, at::ones({2, kWidth}), of(0)), Error);
  CHECK_THROWS_AS(embedding_backward(gradient, dy, of(0).to(at::kInt)), Error);
  CHECK(at::equal(gradient, at::zeros_like(gradient)));
}
