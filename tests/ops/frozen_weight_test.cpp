#include "ops/frozen_weight.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"
#include "ops/dtype.h"
#include "ops/embedding/embedding.h"
#include "support/catch.h"

using lorikeet::DType;
using lorikeet::Error;
using namespace lorikeet::ops;

TEST_CASE("a lease calls its release once, however often it is moved") {
  int released = 0;
  {
    WeightLease first(at::ones({2, 2}), [&] { ++released; });
    WeightLease second(std::move(first));
    CHECK(second.tensor().defined());
    CHECK(released == 0);
    WeightLease third(at::ones({1, 1}), [&] { released += 10; });
    third = std::move(second);
    CHECK(released == 10);
  }
  CHECK(released == 11);
}

TEST_CASE("a resident weight is the tensor itself, and only a matrix is one") {
  const auto tensor = at::randn({3, 4});
  const ResidentWeight weight(tensor);
  CHECK(weight.rows() == 3);
  CHECK(weight.cols() == 4);
  CHECK(weight.lease().tensor().data_ptr() == tensor.data_ptr());
  CHECK_THROWS_AS(ResidentWeight(at::randn({3})), Error);
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
  const ResidentWeight weight(table.to(at::kBFloat16));
  const auto ids = at::tensor({4, 0, 4}, at::kLong);
  const auto rows = embedding(ids, weight, DType::kF32);
  CHECK(rows.scalar_type() == at::kFloat);
  CHECK(at::equal(rows, table.to(at::kBFloat16).to(at::kFloat).index_select(0, ids)));
  CHECK_THROWS_AS(embedding(ids.to(at::kFloat), weight, DType::kF32), Error);
}
