#include <ATen/ATen.h>

#include "ops/quantized/float8_matrix.h"

namespace lorikeet::ops::reference {

void decode_float8(const at::Tensor& bytes, const Float8Layout& layout, std::int64_t first_row,
                   at::ScalarType rounded, const at::Tensor& out) {
  const at::Tensor codes = float8_codes(bytes, layout), scales = float8_scales(bytes, layout);
  for (std::int64_t row = 0; row < out.size(0); ++row) {
    const std::int64_t stored = first_row + row;
    const at::Tensor of_blocks = scales.select(0, stored / layout.block_rows).view({-1, 1});
    const at::Tensor of_columns =
        of_blocks.expand({-1, layout.block_cols}).flatten().narrow(0, 0, layout.cols);
    out.select(0, row).copy_((codes.select(0, stored).to(at::kFloat) * of_columns).to(rounded));
  }
}

}  // namespace lorikeet::ops::reference
