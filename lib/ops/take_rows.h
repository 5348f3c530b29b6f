#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

namespace lorikeet::ops {

/// The rows `ids` (int64 [n], each in [0, m)) of `table` [m, columns] as [n, columns]. ATen's index_select
/// has no Meta form in C++, so a dry run makes the result here.
inline at::Tensor take_rows(const at::Tensor& table, const at::Tensor& ids) {
  if (table.is_meta()) return at::empty({ids.size(0), table.size(1)}, table.options());
  return at::index_select(table, 0, ids);
}

/// take_rows' transpose, for ids of which no two are equal: [count, columns] with `rows` [n, columns] in its
/// rows `ids` and zeros elsewhere.
inline at::Tensor put_rows(const at::Tensor& rows, const at::Tensor& ids, std::int64_t count) {
  return at::zeros({count, rows.size(1)}, rows.options()).index_copy_(0, ids, rows);
}

}  // namespace lorikeet::ops
