#include "ops/in_place.h"

#include <ATen/ATen.h>

#include "support/catch.h"

using namespace lorikeet;

namespace {

// A matrix [rows, 3] in a buffer of numbers that count up.
at::Tensor matrix(const at::Tensor& buffer, std::int64_t offset, std::int64_t rows) {
  return buffer.narrow(0, offset, rows * 3).view({rows, 3});
}

}  // namespace

TEST_CASE("rows that follow each other in memory are one matrix without a copy") {
  const at::Tensor buffer = at::arange(60);
  const at::Tensor rows =
      ops::rows_in_place({matrix(buffer, 6, 2), matrix(buffer, 12, 1), matrix(buffer, 15, 3)});
  REQUIRE(rows.defined());
  CHECK(rows.is_alias_of(buffer));
  CHECK(at::equal(rows, matrix(buffer, 6, 6)));
  CHECK_FALSE(ops::rows_in_place({matrix(buffer, 6, 2), matrix(buffer, 15, 1)}).defined());
  CHECK_FALSE(ops::rows_in_place({matrix(buffer, 6, 2), matrix(at::arange(60), 12, 1)}).defined());
  CHECK_FALSE(ops::rows_in_place({matrix(buffer, 6, 2), {}}).defined());
}

TEST_CASE("matrices at equal distances in memory are a list without a copy, in either order") {
  const at::Tensor buffer = at::arange(60);
  const std::vector<at::Tensor> up = {matrix(buffer, 3, 2), matrix(buffer, 13, 2), matrix(buffer, 23, 2)};
  const std::vector<at::Tensor> down(up.rbegin(), up.rend());
  for (const auto& matrices : {up, down}) {
    const ops::MatrixList list = ops::listed_in_place(matrices);
    REQUIRE(list.defined());
    CHECK(list.in_memory.is_alias_of(buffer));
    CHECK(list.count() == 3);
    CHECK(list.rows() == 2);
    CHECK(list.cols() == 3);
    for (std::int64_t i = 0; i < 3; ++i) CHECK(at::equal(list[i], matrices[static_cast<std::size_t>(i)]));
    CHECK(list[1].storage_offset() - list[0].storage_offset() == list.apart());
  }
  CHECK_FALSE(ops::listed_in_place({up[0], up[1], matrix(buffer, 24, 2)}).defined());         // not as far
  CHECK_FALSE(ops::listed_in_place({up[0], up[1], matrix(buffer, 23, 1)}).defined());         // another shape
  CHECK_FALSE(ops::listed_in_place({matrix(buffer, 3, 2), matrix(buffer, 6, 2)}).defined());  // on each other
  CHECK_FALSE(ops::listed_in_place({up[0], matrix(at::arange(60), 13, 2)}).defined());
  CHECK_FALSE(ops::listed_in_place({up[0], {}}).defined());
}
