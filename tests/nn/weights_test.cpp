#include "nn/weights.h"

#include <ATen/ATen.h>

#include "nn/batch.h"
#include "nn/linear.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::nn;

namespace {

std::vector<std::int64_t> offsets(const WeightUnit& unit) {
  std::vector<std::int64_t> result;
  for (const WeightSegment& segment : unit.segments()) result.push_back(segment.offset_bytes);
  return result;
}

}  // namespace

TEST_CASE("each declaration starts at 512 bytes and its tensors lie without gaps, vectors by themselves") {
  WeightUnit unit("layer 0");
  CHECK(unit.declare({{"norm", {3}, DType::kF32}}) == 0);
  CHECK(unit.declare(
            {{"q", {4, 3}, DType::kBF16}, {"k", {2, 3}, DType::kBF16}, {"v", {2, 3}, DType::kBF16}}) == 1);
  CHECK(unit.declare({{"o", {200, 3}, DType::kF32}}) == 4);
  CHECK(unit.declare({{"bias", {3}, DType::kF32}}) == 5);
  // q has 24 bytes and k 12; o ends at 512 + 2400.
  CHECK(offsets(unit) == std::vector<std::int64_t>{0, 0, 24, 36, 512, 512});
  CHECK(unit.matrix_bytes() == 2912);
  CHECK(unit.bytes() == 2912 + 512 + 12);
  CHECK_THROWS(unit.declare({{"w", {4, 3}, DType::kF32}, {"b", {4}, DType::kF32}}));
}

TEST_CASE("parts are equal, cut at 512 bytes, and together hold every element once") {
  for (const int size : {1, 2, 3, 5}) {
    std::int64_t q_seen = 0, o_seen = 0;
    for (int rank = 0; rank < size; ++rank) {
      WeightUnit unit("layer 0");
      unit.declare({{"norm", {3}, DType::kF32}});
      unit.declare({{"q", {4, 3}, DType::kBF16}});
      unit.declare({{"o", {200, 3}, DType::kF32}});
      unit.allocate(at::kCPU, {rank, size});
      CHECK(unit.held(0).values.numel() == 3);  // whole on every rank
      CHECK(unit.part().numel() == unit.part_bytes(size));
      if (size > 1) CHECK(unit.part_bytes(size) % 512 == 0);
      CHECK(unit.part_bytes(size) * size >= unit.matrix_bytes());
      const auto held_q = unit.held(1), held_o = unit.held(2);
      if (held_q.values.defined()) {
        CHECK(held_q.first == q_seen);
        q_seen += held_q.values.numel();
      }
      if (held_o.values.defined()) {
        CHECK(held_o.first == o_seen);
        o_seen += held_o.values.numel();
      }
      if (size > 1) CHECK_THROWS(unit.tensor(2));  // it has to be borrowed
    }
    CHECK(q_seen == 12);
    CHECK(o_seen == 600);
  }
}

TEST_CASE("a matrix over a declaration is the rows of its tensors after each other") {
  WeightUnit unit("layer 0");
  unit.declare({{"norm", {5}, DType::kF32}});
  const std::size_t first = unit.declare({{"q", {4, 3}, DType::kF32}, {"k", {2, 3}, DType::kF32}});
  unit.allocate(at::kCPU);
  const at::Tensor q = at::randn({4, 3}), k = at::randn({2, 3});
  unit.tensor(first).copy_(q);
  unit.tensor(first + 1).copy_(k);
  const UnitLoan loan{&unit, unit.part()};
  const at::Tensor both = loan.matrix(first, 6, 3).dense(at::kFloat);
  CHECK(at::equal(both, at::cat({q, k})));
  CHECK(both.data_ptr() == unit.tensor(first).data_ptr());  // a view, no copy
}

TEST_CASE("a unit that is allocated takes no further tensors") {
  WeightUnit unit("layer 0");
  unit.declare({{"norm", {5}, DType::kF32}});
  unit.allocate(at::kCPU);
  CHECK_THROWS(unit.declare({{"late", {5}, DType::kF32}}));
}

TEST_CASE("a store keeps its units in the order of use and counts their bytes") {
  WeightStore store;
  store.add_unit("embedding").declare({{"e", {10}, DType::kF32}});
  store.add_unit("head").declare({{"h", {3}, DType::kBF16}});
  CHECK(store.units().at(0)->name() == "embedding");
  CHECK(store.units().at(1)->name() == "head");
  CHECK(store.bytes() == 46);
}

TEST_CASE("a unit that isn't split is lent as it lies there, one that is only by a lender") {
  WeightStore store;
  WeightUnit& unit = store.add_unit("head");
  unit.declare({{"w", {200, 3}, DType::kBF16}});
  store.allocate(at::kCPU);
  CHECK(store.borrow(unit).matrices.data_ptr() == unit.part().data_ptr());

  WeightStore split;
  WeightUnit& part = split.add_unit("head");
  part.declare({{"w", {200, 3}, DType::kBF16}});
  split.allocate(at::kCPU, {.rank = 1, .size = 2});
  CHECK_THROWS(split.borrow(part));
}

TEST_CASE("a frozen group is one product over its concatenated weights and biases") {
  const precision::Policy fp32{.base_storage = DType::kF32, .compute = DType::kF32};
  WeightUnit unit("layer 0");
  FrozenFactory factory(fp32);
  const auto group =
      factory.linear({.modules = {{"gate", 4}, {"up", 2}}, .in_features = 3, .bias = true}, unit);
  std::vector<std::string> names;
  for (const WeightSegment& segment : unit.segments()) names.push_back(segment.name);
  CHECK(names == std::vector<std::string>{"gate.weight", "up.weight", "gate.bias", "up.bias"});
  unit.allocate(at::kCPU);
  for (std::size_t i = 0; i < 4; ++i) unit.tensor(i).copy_(at::randn(unit.segments()[i].shape));

  const at::Tensor x = at::randn({5, 3});
  const Batch batch;
  nn::LinearKept kept;
  const at::Tensor y = group->forward(x, {&unit, unit.part()}, {.batch = batch}, &kept);
  CHECK_FALSE(group->learns());
  CHECK_FALSE(kept.low_rank.defined());
  const at::Tensor expected = at::cat(
      {at::linear(x, unit.tensor(0), unit.tensor(2)), at::linear(x, unit.tensor(1), unit.tensor(3))}, 1);
  CHECK(at::allclose(y, expected, 1e-5, 1e-6));
}

TEST_CASE("sequences are packed with their positions, from where each one stands") {
  const Batch batch = pack_sequences({{5, 6, 7}, {}, {8}}, {0, 2, 9}, at::kCPU);
  CHECK(at::equal(batch.tokens, at::tensor(std::vector<std::int64_t>{5, 6, 7, 8})));
  CHECK(at::equal(batch.position_ids, at::tensor(std::vector<std::int64_t>{0, 1, 2, 9})));
  CHECK(at::equal(batch.sample_ids, at::tensor(std::vector<std::int64_t>{0, 0, 0, 2})));
  CHECK(batch.sequences.cu_seqlens == std::vector<std::int32_t>{0, 3, 3, 4});
  CHECK(batch.sequences.max_seqlen == 3);
  CHECK(batch.positions == 10);
  CHECK(batch.real_tokens == 4);
}
