#include "models/tensor_pieces.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/dtype.h"

namespace lorikeet::models {

at::Tensor flat_tensor(DType dtype, std::string_view bytes, std::vector<char>* scratch) {
  const void* data = bytes.data();
  if (reinterpret_cast<std::uintptr_t>(data) % dtype_size(dtype) != 0) {
    scratch->assign(bytes.begin(), bytes.end());
    data = scratch->data();
  }
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(bytes.size() / dtype_size(dtype))},
                       at::TensorOptions().dtype(ops::to_torch(dtype)));
}

std::size_t add_blocks(const io::TensorView& view, std::size_t begin, std::size_t end,
                       io::TensorDigest* digest) {
  static constexpr std::size_t kBlock = io::TensorDigest::kBlockBytes;
  const std::size_t first = (begin + kBlock - 1) / kBlock, last = (end + kBlock - 1) / kBlock;
  if (first >= last) return end;
  std::vector<io::TensorDigest> blocks(last - first);
  at::parallel_for(0, std::ssize(blocks), 1, [&](std::int64_t from, std::int64_t to) {
    for (auto i = static_cast<std::size_t>(from); i < static_cast<std::size_t>(to); ++i)
      blocks[i].add_block(view, first + i);
  });
  for (const io::TensorDigest& block : blocks) *digest += block;
  return std::max(end, std::min(last * kBlock, view.bytes.size()));
}

}  // namespace lorikeet::models
