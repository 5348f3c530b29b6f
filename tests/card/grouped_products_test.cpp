// Products of all experts' rows in one launch, on the fake card, against fp64.
#include "ops/experts/grouped_products.h"

#include <ATen/ATen.h>

#include "card/kernel_checks.h"
#include "ops/dtype.h"
#include "ops/experts/grouped_lora.h"
#include "ops/quantized/quantized_format.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr const char* kProducts = "grouped_products_cuda.cu";
constexpr const char* kSums = "grouped_sums_cuda.cu";

at::Tensor on_host(const at::Tensor& tensor) { return tensor.cpu().to(at::kDouble); }

at::Tensor numbers(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType dtype = at::kBFloat16) {
  return random(sizes, seed).to(dtype).to(kCard);
}

// Of rows as many as `counts` says, one expert's after the other's.
Routing routing_of(const std::vector<std::int64_t>& counts) {
  Routing routing;
  routing.ends = at::tensor(counts).cumsum(0).to(kCard);
  routing.tokens = at::arange(routing.host_ends().back()).to(kCard);
  return routing;
}

// Calls f(expert, begin, end) for each expert.
template <typename F>
void for_each(const Routing& routing, F&& f) {
  std::int64_t begin = 0;
  for (std::size_t e = 0; e < routing.host_ends().size(); ++e) {
    const std::int64_t end = routing.host_ends()[e];
    f(static_cast<std::int64_t>(e), begin, end);
    begin = end;
  }
}

// In fp64: left [rows, inner] times its expert's matrix [inner, columns].
at::Tensor expected_product(const at::Tensor& left, const at::Tensor& right, const Routing& routing) {
  at::Tensor out = at::zeros({left.size(0), right.size(2)}, at::kDouble);
  for_each(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    out.slice(0, begin, end) = on_host(left).slice(0, begin, end).mm(on_host(right)[e]);
  });
  return out;
}

// Matrices [experts, rows, cols] as stored numbers, with a gap between two of them.
MatrixStack stack_of(const at::Tensor& matrices) {
  const std::int64_t count = matrices.size(0);
  const std::int64_t bytes = matrices[0].numel() * static_cast<std::int64_t>(matrices.element_size());
  const std::int64_t apart = bytes + 512;
  MatrixStack stack{
      .first = {&dense_format(from_torch(matrices.scalar_type())),
                {},
                matrices.size(1),
                matrices.size(2),
                nullptr},
      .bytes = at::zeros({(count - 1) * apart + bytes}, at::TensorOptions(at::kByte).device(kCard)),
      .apart = apart,
      .count = count};
  for (std::int64_t e = 0; e < count; ++e)
    stack.bytes.narrow(0, e * apart, bytes).copy_(matrices[e].contiguous().view({-1}).view(at::kByte));
  stack.first.bytes = stack.bytes.narrow(0, 0, bytes);
  return stack;
}

struct Launched {
  std::int64_t products, sums;
};

// Launches of `f`, which mustn't have a hazard.
template <typename F>
Launched launched(F&& f) {
  card::reset_report();
  f();
  CHECK(card::report().hazards.empty());
  return {card::report().kernels[kProducts], card::report().kernels[kSums]};
}

// One rounding of the result: 2^-9 and 2^-12 of it, at most.
double rounding(at::ScalarType dtype) { return dtype == at::kBFloat16 ? 4e-3 : 5e-4; }

// Counts of rows: none, one, a tile, a little more, several tiles.
const std::vector<std::int64_t> kCounts = {0, 5, 128, 0, 129, 300, 1, 0};

}  // namespace

TEST_CASE("each expert's rows are multiplied by its own matrix, of any shape, in one launch") {
  const Routing routing = routing_of(kCounts);
  const std::int64_t rows = routing.host_ends().back(), experts = std::ssize(kCounts);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    // Columns of a narrow tile and of wide ones, not all full; an inner dimension of less than a stage, of as
    // many stages as there are, and of more.
    for (const auto& [columns, inner] : {std::pair<std::int64_t, std::int64_t>{8, 8},
                                         {24, 104},
                                         {32, 96},
                                         {40, 64},
                                         {128, 32},
                                         {264, 136}}) {
      CAPTURE(dtype, columns, inner);
      const at::Tensor left = numbers({rows, inner}, 1, dtype),
                       right = numbers({experts, columns, inner}, 2, dtype);
      const at::Tensor out = at::empty({rows, columns}, left.options());
      CHECK(launched([&] { grouped_product(out, left, {right}, /*transposed=*/false, routing); }).products ==
            1);
      const at::Tensor expected = expected_product(left, right.transpose(1, 2), routing);
      CHECK(relative_distance(on_host(out), expected) < rounding(dtype));
      const at::Tensor shifted = expected_product(left, right.roll(1, 0).transpose(1, 2), routing);
      CHECK(relative_distance(on_host(out), shifted) > 0.1);

      out.fill_(1);
      const at::Tensor transposed = right.transpose(1, 2).contiguous();
      CHECK(launched([&] {
              grouped_product(out, left, {transposed}, /*transposed=*/true, routing);
            }).products == 1);
      CHECK(relative_distance(on_host(out), expected) < rounding(dtype));
    }
  }
}

TEST_CASE("products of a part of the columns are written to a part of a result, and nowhere else") {
  const Routing routing = routing_of({3, 130});
  const at::Tensor dy = numbers({133, 64}, 1), b = numbers({2, 24, 16}, 2);
  const at::Tensor out = at::full({133, 48}, 7, dy.options());
  grouped_product(out.slice(1, 16, 32), dy.slice(1, 40, 64), {b}, /*transposed=*/true, routing);
  CHECK(relative_distance(on_host(out.slice(1, 16, 32)), expected_product(dy.slice(1, 40, 64), b, routing)) <
        rounding(at::kBFloat16));
  CHECK((on_host(out.slice(1, 0, 16)) == 7).all().item<bool>());
  CHECK((on_host(out.slice(1, 32, 48)) == 7).all().item<bool>());
}

TEST_CASE("low-rank terms and biases are added before the result is rounded") {
  const Routing routing = routing_of(kCounts);
  const std::int64_t rows = routing.host_ends().back(), experts = std::ssize(kCounts), in = 72, half = 136,
                     rank = 16;
  const double scale = 1.7;
  const at::Tensor x = numbers({rows, in}, 1), w = numbers({experts, 2 * half, in}, 2);
  const at::Tensor u = numbers({rows, 2 * rank}, 3), b = numbers({experts, 2 * half, rank}, 4);
  MatrixStack stack = stack_of(w);
  stack.bias = numbers({experts, 2 * half}, 5);
  at::Tensor out = at::empty({rows, 2 * half}, x.options());
  const auto term = [&](std::int64_t i) {
    return GroupedTerm{
        u.slice(1, i * rank, (i + 1) * rank), {b.slice(1, i * half, (i + 1) * half)}, i * half};
  };
  at::Tensor expected = expected_product(x, w.transpose(1, 2), routing);
  for_each(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    expected.slice(0, begin, end) += on_host(stack.bias)[e];
  });
  const auto of_term = [&](std::int64_t i) {
    return scale * expected_product(term(i).left, term(i).right.in_memory.transpose(1, 2), routing);
  };
  grouped_forward(out, x, routing, stack);
  CHECK(relative_distance(on_host(out), expected) < rounding(at::kBFloat16));
  // Stored in another dtype, as the base may be: numbers that bf16 has.
  MatrixStack fp32 = stack_of(w.to(at::kFloat));
  fp32.bias = stack.bias.to(at::kFloat);
  at::Tensor converted = at::empty_like(out);
  grouped_forward(converted, x, routing, fp32);
  CHECK(at::equal(converted.cpu(), out.cpu()));
  expected.slice(1, half, 2 * half) += of_term(1);
  CHECK(launched([&] { grouped_forward(out, x, routing, stack, {term(1)}, scale); }).products == 1);
  CHECK(relative_distance(on_host(out), expected) < rounding(at::kBFloat16));
  expected.slice(1, 0, half) += of_term(0);
  CHECK(launched([&] { grouped_forward(out, x, routing, stack, {term(0), term(1)}, scale); }).products == 1);
  CHECK(relative_distance(on_host(out), expected) < rounding(at::kBFloat16));

  // Back: a term of all columns, whose inner dimension is all ranks.
  const at::Tensor du = numbers({rows, 2 * rank}, 6), a = numbers({experts, 2 * rank, in}, 7);
  const at::Tensor dy = numbers({rows, 2 * half}, 8);
  at::Tensor dx = at::empty({rows, in}, x.options());
  grouped_backward(dx, dy, routing, stack, {{du, {a}}}, scale);
  CHECK(relative_distance(on_host(dx),
                          expected_product(dy, w, routing) + scale * expected_product(du, a, routing)) <
        rounding(at::kBFloat16));
}

TEST_CASE("sums over each expert's rows are added to what is there") {
  const Routing routing = routing_of(kCounts);
  const std::int64_t rows = routing.host_ends().back(), experts = std::ssize(kCounts);
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{136, 16}, {16, 264}, {8, 8}, {72, 64}}) {
    CAPTURE(m, n);
    const at::Tensor left = numbers({rows, m}, 1), right = numbers({rows, n}, 2);
    const at::Tensor sums = at::ones({experts, m, n}, at::TensorOptions(at::kFloat).device(kCard));
    at::Tensor expected = at::ones({experts, m, n}, at::kDouble);
    for_each(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
      expected[e] += 0.5 * on_host(left).slice(0, begin, end).t().mm(on_host(right).slice(0, begin, end));
    });
    CHECK(launched([&] { grouped_sums({sums}, left, right, 0.5, routing); }).sums == 1);
    // fp32 sums of products of 16-bit numbers, which are exact.
    CHECK(relative_distance(on_host(sums), expected) < 1e-6);
  }
}

TEST_CASE("matrices in 4 bits are decoded for the product, as many at a time as scratch holds") {
  constexpr std::int64_t kOut = 24, kIn = 64;
  const std::vector<std::int64_t> counts = {3, 0, 140, 5, 1};
  const Routing routing = routing_of(counts);
  const std::int64_t rows = routing.host_ends().back(), experts = std::ssize(counts);
  const at::Tensor w = random({experts, kOut, kIn}, 1).to(at::kFloat);
  std::vector<at::Tensor> bytes, decoded;
  MatrixStack stack{.first = quantized_matrix(w[0]), .bytes = {}, .apart = 0, .count = experts};
  for (std::int64_t e = 0; e < experts; ++e) {
    const FrozenMatrix matrix = quantized_matrix(w[e]);
    bytes.push_back(matrix.bytes);
    decoded.push_back(matrix.dense(at::kBFloat16));
  }
  stack.apart = stack.first.bytes.numel();
  stack.bytes = at::cat(bytes).to(kCard);
  stack.first.bytes = stack.bytes.narrow(0, 0, stack.apart);
  const at::Tensor x = numbers({rows, kIn}, 2), dy = numbers({rows, kOut}, 3), dense = at::stack(decoded);
  const at::Tensor b = numbers({experts, kOut, 8}, 4), u = numbers({rows, 8}, 5);
  at::Tensor out = at::empty({rows, kOut}, x.options()), dx = at::empty({rows, kIn}, x.options());
  for (const auto& [scratch, launches] :
       {std::pair<std::int64_t, int>{1 << 20, 1}, {2 * kOut * kIn * 2, 3}, {1, 5}}) {
    CAPTURE(scratch);
    stack.scratch_bytes = scratch;
    card::reset_report();
    grouped_forward(out, x, routing, stack, {{u, {b}}}, 0.5);
    CHECK(card::report().kernels["dequantize_cuda.cu"] == launches);
    CHECK(card::report().kernels[kProducts] == launches);
    CHECK(relative_distance(on_host(out), expected_product(x, dense.transpose(1, 2), routing) +
                                              0.5 * expected_product(u, b.transpose(1, 2), routing)) <
          rounding(at::kBFloat16));
    grouped_backward(dx, dy, routing, stack);
    CHECK(relative_distance(on_host(dx), expected_product(dy, dense, routing)) < rounding(at::kBFloat16));
    CHECK(card::report().hazards.empty());
    out.fill_(3);
    dx.fill_(3);
  }
}

TEST_CASE("which products of experts go into one launch") {
  const auto takes = [](std::int64_t rows, std::int64_t out, std::int64_t in, at::ScalarType dtype) {
    return groups_products(at::zeros({rows, in}, at::TensorOptions(dtype).device(kCard)),
                           stack_of(at::zeros({2, out, in}, at::TensorOptions(at::kBFloat16).device(kCard))));
  };
  CHECK(takes(100, 64, 64, at::kBFloat16));
  CHECK_FALSE(takes(100, 64, 64, at::kFloat));
  CHECK_FALSE(takes(100, 60, 64, at::kBFloat16));
  CHECK_FALSE(takes(100, 64, 60, at::kBFloat16));
  // Large ones fill a GPU by themselves.
  CHECK(takes(2048, 128 * 31, 8, at::kBFloat16));
  CHECK_FALSE(takes(2048, 128 * 32, 8, at::kBFloat16));
  // Matrices of another dtype have to be converted, which few rows aren't worth.
  CHECK(takes(8, 64, 64, at::kHalf));
  CHECK_FALSE(takes(7, 64, 64, at::kHalf));
  CHECK(takes(7, 64, 64, at::kBFloat16));
}

TEST_CASE("low-rank updates of all experts compute what each expert's own do") {
  // An adapter store has the last group first.
  const bool reversed = GENERATE(false, true);
  CAPTURE(reversed);
  constexpr std::int64_t kExperts = 3, kIn = 40, kHalf = 24, kRank = 8;
  const Routing routing = routing_of({130, 0, 5});
  const at::Tensor w = numbers({kExperts, 2 * kHalf, kIn}, 1), x = numbers({135, kIn}, 2),
                   dy = numbers({135, 2 * kHalf}, 3);
  const MatrixStack stack = stack_of(w);
  // Of each expert A of both modules, then B of both.
  constexpr std::int64_t kOfExpert = 2 * kRank * (kIn + kHalf);
  const at::Tensor values = numbers({kExperts * kOfExpert}, 4);
  const auto on_card = at::TensorOptions(at::kFloat).device(kCard);
  const at::Tensor together = at::zeros({kExperts * kOfExpert}, on_card), alone = at::zeros_like(together);
  bool reached[2 * kExperts] = {};
  const auto projections = [&](const at::Tensor& gradients, std::int64_t e) {
    std::vector<LoraProjection> both;
    const std::int64_t place = (reversed ? kExperts - 1 - e : e) * kOfExpert;
    for (std::int64_t i = 0; i < 2; ++i) {
      const auto a = [&](const at::Tensor& all) {
        return all.narrow(0, place + i * kRank * kIn, kRank * kIn).view({kRank, kIn});
      };
      const auto b = [&](const at::Tensor& all) {
        return all.narrow(0, place + kRank * (2 * kIn + i * kHalf), kRank * kHalf).view({kHalf, kRank});
      };
      both.push_back({i * kHalf, (i + 1) * kHalf, a(values), b(values), a(gradients), b(gradients), 1.5,
                      &reached[2 * e + i]});
    }
    return both;
  };
  std::vector<std::vector<LoraProjection>> experts;
  for (std::int64_t e = 0; e < kExperts; ++e) experts.push_back(projections(together, e));
  const auto updates = stack_updates(experts);
  REQUIRE(updates);
  card::reset_report();
  at::Tensor y = at::empty({135, 2 * kHalf}, x.options()), dx = at::empty_like(x);
  const at::Tensor low_rank = grouped_lora_forward(y, x, routing, stack, *updates);
  const at::Tensor gradient = grouped_lora_backward(dx, dy, low_rank, routing, stack, *updates);
  grouped_a_gradients(gradient, x, routing, *updates);
  CHECK(card::report().hazards.empty());
  // x A^T and y; of each module its part of the gradient, then dx. Of each B, and of all A.
  CHECK(card::report().kernels[kProducts] == 5);
  CHECK(card::report().kernels[kSums] == 3);
  for (const bool of_one : reached) CHECK(of_one);
  for_each(routing, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    const auto rows = [&](const at::Tensor& all) { return all.slice(0, begin, end); };
    at::Tensor own_low_rank;
    const auto own = projections(alone, e);
    const at::Tensor own_y = lora_linear(rows(x), stack.of(e), {}, own, {}, &own_low_rank);
    const at::Tensor own_dx =
        lora_linear_backward(rows(dy), rows(x), own_low_rank, stack.of(e), own, {}, true);
    if (begin == end) return;
    // There the product is rounded before the term is added, and once more behind it.
    CHECK(relative_distance(on_host(rows(y)), on_host(own_y)) < 8e-3);
    CHECK(relative_distance(on_host(rows(dx)), on_host(own_dx)) < 8e-3);
  });
  CHECK(relative_distance(on_host(together), on_host(alone)) < 4e-3);
  CHECK(alone.abs().max().item<double>() > 1);

  // Not alike, or not at equal distances.
  auto other = experts;
  other[1][1].scale = 2;
  CHECK_FALSE(stack_updates(other));
  other = experts;
  other[2].pop_back();
  CHECK_FALSE(stack_updates(other));
  other = experts;
  std::swap(other[1], other[2]);
  CHECK_FALSE(stack_updates(other));
  // PiSSA trains a part of the ranks.
  other = experts;
  for (auto& of_expert : other) {
    for (LoraProjection& p : of_expert) p.grad_b = p.grad_b.slice(1, 0, kRank / 2);
  }
  CHECK_FALSE(stack_updates(other));
  CHECK_FALSE(stack_updates({experts.front()}));
}
