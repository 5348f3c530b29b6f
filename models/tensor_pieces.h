#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "io/tensor_digest.h"

namespace lorikeet::models {

/// Of a tensor's mapped bytes at most so many are in memory beside what they became.
inline constexpr std::size_t kPieceBytes = 8 * io::TensorDigest::kBlockBytes;

/// Mapped bytes as a flat tensor; copied to `scratch` where they are not aligned to their element size.
at::Tensor flat_tensor(DType dtype, std::string_view bytes, std::vector<char>* scratch);

/// Adds the blocks that begin in the bytes [begin, end) of a tensor, hashed on all threads. Returns where the
/// last of them, or the range, ends.
std::size_t add_blocks(const io::TensorView& view, std::size_t begin, std::size_t end,
                       io::TensorDigest* digest);

}  // namespace lorikeet::models
