#include "ops/weight_format.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "ops/dtype.h"
#include "ops/embedding/embedding.h"
#include "support/catch.h"

using lorikeet::DType;
using lorikeet::Error;
using namespace lorikeet::ops;

TEST_CASE("a dense matrix multiplies as its numbers do, in whatever dtype it is stored") {
  const auto weight = at::randn({7, 5}).to(at::kBFloat16);
  const auto x = at::randn({3, 5}), dy = at::randn({3, 7}), bias = at::randn({7});
  const auto left = at::randn({3, 2}), right = at::randn({4, 2});
  const auto a = at::randn({2, 5});
  const auto wide = weight.to(at::kFloat);
  for (const auto& stored : {frozen_matrix(weight), frozen_matrix(wide)}) {
    CHECK(stored.rows == 7);
    CHECK(stored.cols == 5);
    CHECK(stored.format->bytes(7, 5) == stored.bytes.numel());
    auto out = at::empty({3, 7}), dx = at::empty({3, 5});
    stored.format->forward(out, x, stored, {{left, right, 2}}, bias);
    auto expected = at::linear(x, wide, bias);
    expected.slice(1, 2, 6).add_(at::matmul(left, right.t()));
    CHECK(at::allclose(out, expected, 1e-5, 1e-6));
    stored.format->backward(dx, dy, stored, {{left, a, 0}});
    CHECK(at::allclose(dx, at::matmul(dy, wide) + at::matmul(left, a), 1e-5, 1e-6));
  }
}

TEST_CASE("a dense matrix gives its rows: views where they are stored so, converted else") {
  const auto weight = at::randn({6, 4}).to(at::kBFloat16);
  const auto stored = frozen_matrix(weight);
  CHECK(stored.dense(at::kBFloat16).data_ptr() == weight.data_ptr());
  const auto rows = stored.format->rows(stored, 2, 5, at::kFloat);
  CHECK(rows.scalar_type() == at::kFloat);
  CHECK(at::equal(rows, weight.slice(0, 2, 5).to(at::kFloat)));
  const auto ids = at::tensor({5, 0, 5}, at::kLong);
  CHECK(at::equal(stored.format->lookup(stored, ids, at::kBFloat16), weight.index_select(0, ids)));
}

TEST_CASE("only a matrix of floating numbers is a dense frozen weight") {
  CHECK_THROWS_AS(frozen_matrix(at::randn({3})), Error);
  CHECK_THROWS_AS(frozen_matrix(at::ones({3, 2}, at::kLong)), Error);
}

TEST_CASE("every element type has its libtorch twin and back") {
  for (int i = 0; i <= static_cast<int>(DType::kF8E5M2); ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(from_torch(to_torch(dtype)) == dtype);
    CHECK(c10::elementSize(to_torch(dtype)) == lorikeet::dtype_size(dtype));
  }
  CHECK_THROWS_AS(from_torch(at::kComplexFloat), Error);
}

TEST_CASE("an embedding gives the table's rows in the asked dtype") {
  const auto table = at::randn({5, 3});
  const auto weight = frozen_matrix(table.to(at::kBFloat16));
  const auto ids = at::tensor({4, 0, 4}, at::kLong);
  const auto rows = embedding(ids, weight, DType::kF32);
  CHECK(rows.scalar_type() == at::kFloat);
  CHECK(at::equal(rows, table.to(at::kBFloat16).to(at::kFloat).index_select(0, ids)));
  CHECK_THROWS_AS(embedding(ids.to(at::kFloat), weight, DType::kF32), Error);
}
