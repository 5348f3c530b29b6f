#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

namespace lorikeet::ops {

/// The rows `ids` (int64 [n], each in [0, m)) of `table` [m, columns] as [n, columns]. ATen's index_select
/// has no Meta form in C++, so a dry run makes the result here.
inline at::Tensor take_rows(const at::Tensor& table, const at::Tensor& ids) {
  if (table.is_meta()) return at::empty({ids.size(0), table.size(1)}, table.options());
  return at::index_select(table, 0, ids);
}

}  // namespace lorikeet::ops
