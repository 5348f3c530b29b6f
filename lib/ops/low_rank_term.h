#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/low_rank_on_device.h"
#include "ops/matmul/matmul.h"

// Low-rank terms of products as the kernels that read these take them. Without data, for a dry run, pointers
// are null.
namespace lorikeet::ops {

/// Whether such kernels take a product's rows of `width` numbers: 16 bits, dense, on a GPU with tensor cores.
bool takes_terms(const at::Tensor& product, std::int64_t width);

/// A term of `product` with `right`, its own right operand or a part of it; nothing where it doesn't fit.
std::optional<LowRankOnDevice> term_on_device(const at::Tensor& product, const LowRankTerm& term,
                                              const at::Tensor& right);

/// The terms of consecutive column ranges of `product`, as wide as `widths`, at most one of each, as those
/// that add left right^T; a term may cover several of them. Nothing where there are no terms, where the
/// kernels don't take the product, where a term doesn't fit, or where a range's columns have one in part.
std::optional<std::vector<LowRankOnDevice>> terms_of_ranges(const at::Tensor& product,
                                                            const std::vector<LowRankTerm>& terms,
                                                            const std::vector<std::int64_t>& widths);

}  // namespace lorikeet::ops
