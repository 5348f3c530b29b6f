#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

// Matrices that lie in one buffer, seen as one tensor without a copy.
namespace lorikeet::ops {

/// The rows of all `parts`, dense matrices of one width, as one matrix, where they follow each other in
/// memory, as a group's do in an adapter store; else undefined.
at::Tensor rows_in_place(const std::vector<at::Tensor>& parts);

/// Matrices of one shape.
struct MatrixList {
  at::Tensor in_memory;   ///< [count, m, n], the last dimension dense; may be undefined
  bool reversed = false;  ///< the last matrix lies first, as an adapter store has groups

  bool defined() const { return in_memory.defined(); }
  std::int64_t count() const { return in_memory.size(0); }
  std::int64_t rows() const { return in_memory.size(1); }
  std::int64_t cols() const { return in_memory.size(2); }
  at::Tensor operator[](std::int64_t i) const { return in_memory.select(0, place(i)); }
  /// Where matrix i lies, counted from the first in memory.
  std::int64_t place(std::int64_t i) const { return reversed ? count() - 1 - i : i; }
  /// Elements from one matrix to the next, negative where the next one lies before it.
  std::int64_t apart() const { return reversed ? -in_memory.stride(0) : in_memory.stride(0); }
};

/// Dense matrices as a list, where they lie at equal distances in memory, in their order or in the reverse;
/// else undefined. At least two.
MatrixList listed_in_place(const std::vector<at::Tensor>& matrices);

}  // namespace lorikeet::ops
