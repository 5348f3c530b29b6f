#include "ops/in_place.h"

#include <ATen/ATen.h>

#include <cstdlib>

namespace lorikeet::ops {
namespace {

// Whether both are dense matrices of one width and dtype, in one buffer.
bool lie_together(const at::Tensor& first, const at::Tensor& other) {
  return other.defined() && other.is_contiguous() && other.is_alias_of(first) &&
         other.scalar_type() == first.scalar_type() && other.size(1) == first.size(1);
}

}  // namespace

at::Tensor rows_in_place(const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  std::int64_t rows = 0;
  for (const at::Tensor& part : parts) {
    if (!lie_together(first, part) || part.storage_offset() != first.storage_offset() + rows * first.size(1))
      return {};
    rows += part.size(0);
  }
  return first.as_strided({rows, first.size(1)}, {first.size(1), 1});
}

MatrixList listed_in_place(const std::vector<at::Tensor>& matrices) {
  const at::Tensor &first = matrices.front(), &last = matrices.back();
  if (!first.defined() || !matrices[1].defined()) return {};
  const std::int64_t apart = matrices[1].storage_offset() - first.storage_offset();
  if (std::abs(apart) < first.numel()) return {};
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const at::Tensor& matrix = matrices[i];
    if (!lie_together(first, matrix) || matrix.size(0) != first.size(0) ||
        matrix.storage_offset() != first.storage_offset() + static_cast<std::int64_t>(i) * apart)
      return {};
  }
  const bool reversed = apart < 0;
  return {(reversed ? last : first)
              .as_strided({std::ssize(matrices), first.size(0), first.size(1)},
                          {std::abs(apart), first.size(1), 1}),
          reversed};
}

}  // namespace lorikeet::ops
