#include "nn/row_order.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "nn/reorder_rows.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::nn;
using Catch::Contains;
using test::error_text;
using Rows = std::vector<std::int64_t>;

namespace {

at::Tensor rows_of(const Rows& values) { return at::tensor(values, at::TensorOptions(at::kLong)); }

Rows values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

// Which row of the module each row of the group is.
Rows group_order(const RowOrder& order, std::int64_t rows) {
  Rows numbers(static_cast<std::size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  return values_of(to_group_order(rows_of(numbers), order));
}

std::string error_of(std::int64_t out_features, const RowOrder& order) {
  return error_text([&] { require_valid_order({"h.0.attn.qkv", out_features, order}); });
}

}  // namespace

TEST_CASE("modules that hold their parts once have one order: Phi-3's and Falcon-7B's") {
  const RowOrder phi3_qkv{1, {4, 2, 2}, 2}, phi3_gate_up{1, {1, 1}, 3}, falcon_7b{1, {3, 1, 1}, 2};
  CHECK(group_order(phi3_qkv, 16) == Rows{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(group_order(phi3_gate_up, 6) == Rows{0, 1, 2, 3, 4, 5});
  CHECK(group_order(falcon_7b, 10) == Rows{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  for (const RowOrder& order : {phi3_qkv, phi3_gate_up, falcon_7b, RowOrder{}, RowOrder{3, {2}, 2}}) {
    CHECK(order.is_identity());
    CHECK((row_runs(order, 12) == std::vector<RowRun>{{0, 0, 12}}));
  }
}

TEST_CASE("Falcon-40B's key-value heads each bring their queries along") {
  const RowOrder order{2, {2, 1, 1}, 2};  // 4 query heads and 2 key-value heads of 2 rows
  // The module's rows: 0-3 two query heads, 4-5 their key, 6-7 their value; 8-11, 12-13, 14-15 the same
  // again.
  CHECK(group_order(order, 16) == Rows{0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15});
  CHECK((row_runs(order, 16) ==
         std::vector<RowRun>{{0, 0, 4}, {4, 8, 2}, {6, 12, 2}, {8, 4, 4}, {12, 10, 2}, {14, 14, 2}}));
  CHECK_FALSE(order.is_identity());
  CHECK(order.rows() == 16);
}

TEST_CASE("GPT-NeoX's heads each have their query, key and value together") {
  const RowOrder order{3, {1, 1, 1}, 2};
  CHECK(group_order(order, 18) == Rows{0, 1, 6, 7, 12, 13, 2, 3, 8, 9, 14, 15, 4, 5, 10, 11, 16, 17});
}

TEST_CASE("gate and up may alternate row by row") {
  CHECK(group_order({3, {1, 1}, 1}, 6) == Rows{0, 2, 4, 1, 3, 5});
}

TEST_CASE("both directions are each other's inverse, for weights, biases and adapters") {
  const RowOrder order{2, {3, 1, 2}, 2};
  for (const Rows& shape : {Rows{24}, Rows{24, 5}, Rows{24, 2, 3}}) {
    const at::Tensor module = at::arange(24 * 30).slice(0, 0, at::zeros(shape).numel()).view(shape);
    const at::Tensor group = to_group_order(module, order);
    CHECK(group.sizes() == module.sizes());
    CHECK_FALSE(at::equal(group, module));
    CHECK(at::equal(to_module_order(group, order), module));
    CHECK(at::equal(to_group_order(to_module_order(module, order), order), module));
  }
  const at::Tensor narrow = at::arange(24).to(at::kBFloat16);
  CHECK(at::equal(to_module_order(to_group_order(narrow, order), order), narrow));
}

TEST_CASE("an identity order copies nothing") {
  const at::Tensor rows = at::arange(8);
  CHECK(to_group_order(rows, {1, {2, 2}, 2}).is_same(rows));
  CHECK(to_module_order(rows, {}).is_same(rows));
}

TEST_CASE("runs cover every row once in module order, and none continues the one before it") {
  for (const RowOrder& order : {RowOrder{2, {2, 1, 1}, 2}, RowOrder{4, {1, 1, 1}, 3}, RowOrder{5, {1, 1}, 1},
                                RowOrder{2, {1, 4}, 2}, RowOrder{7, {3}, 2}, RowOrder{1, {2, 5, 1}, 3}}) {
    const std::vector<RowRun> runs = row_runs(order, order.rows());
    std::vector<int> seen(static_cast<std::size_t>(order.rows()), 0);
    std::int64_t next = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      CHECK(runs[i].module_row == next);
      CHECK(runs[i].count > 0);
      next += runs[i].count;
      for (std::int64_t r = 0; r < runs[i].count; ++r)
        ++seen.at(static_cast<std::size_t>(runs[i].group_row + r));
      if (i > 0) CHECK(runs[i].group_row != runs[i - 1].group_row + runs[i - 1].count);
    }
    CHECK(next == order.rows());
    CHECK(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
  }
  CHECK(row_runs({}, 0).empty());
}

TEST_CASE("an order that doesn't have its module's rows is an error that names the module") {
  CHECK(error_of(16, {2, {2, 1, 1}, 2}) == "no error");
  CHECK(error_of(16, {}) == "no error");
  CHECK_THAT(error_of(18, {2, {2, 1, 1}, 2}),
             Contains("'h.0.attn.qkv' has 2 * (2 + 1 + 1) * 2 = 16 rows") && Contains("that make 18 rows"));
  CHECK_THAT(error_of(16, {1, {6, 1, 1}, 1}), Contains("1 * (6 + 1 + 1) * 1 = 8 rows"));
  // Four query heads and two key-value heads don't divide into four groups.
  CHECK_THAT(error_of(8, {4, {1, 0, 0}, 2}), Contains("expected positive counts"));
  CHECK_THAT(error_of(16, {-2, {-2, -1, -1}, 2}), Contains("expected positive counts"));
  CHECK_THAT(error_of(16, {2, {}, 8}), Contains("= 0 rows"));
}

TEST_CASE("a tensor of another number of rows is not reordered") {
  CHECK_THROWS(to_group_order(at::arange(15), {2, {2, 1, 1}, 2}));
  CHECK_THROWS(to_module_order(at::arange(17), {2, {2, 1, 1}, 2}));
}
