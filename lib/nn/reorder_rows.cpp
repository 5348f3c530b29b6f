#include "nn/reorder_rows.h"

#include <ATen/ATen.h>

namespace lorikeet::nn {
namespace {

// Gives the result's rows [to, to + count) the source's rows [from, from + count), for each run.
at::Tensor permuted(const at::Tensor& source, const RowOrder& order, std::int64_t RowRun::*from,
                    std::int64_t RowRun::*to) {
  if (order.is_identity()) return source;
  TORCH_CHECK(source.size(0) == order.rows(), "expected ", order.rows(), " rows, got ", source.size(0));
  at::Tensor source_rows = at::empty({source.size(0)}, at::TensorOptions(at::kLong));
  auto* rows = source_rows.mutable_data_ptr<std::int64_t>();
  for (const RowRun& run : row_runs(order, source.size(0))) {
    for (std::int64_t i = 0; i < run.count; ++i) rows[run.*to + i] = run.*from + i;
  }
  return source.index_select(0, source_rows.to(source.device()));
}

}  // namespace

at::Tensor to_group_order(const at::Tensor& in_module_order, const RowOrder& order) {
  return permuted(in_module_order, order, &RowRun::module_row, &RowRun::group_row);
}

at::Tensor to_module_order(const at::Tensor& in_group_order, const RowOrder& order) {
  return permuted(in_group_order, order, &RowRun::group_row, &RowRun::module_row);
}

}  // namespace lorikeet::nn
