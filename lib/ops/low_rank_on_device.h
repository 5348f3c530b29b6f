#pragma once

#include <cstdint>

// Low-rank terms as kernels take them, without libtorch.
namespace lorikeet::ops {

/// A low-rank term of a matrix [rows, width]: `scale` times the product of `left` [rows, rank] and `right`,
/// device memory of the matrix's element type.
struct LowRankOnDevice {
  const void* left = nullptr;   ///< a row begins at a multiple of rank / 2 bytes; nullptr: no such term
  std::int64_t left_row = 0;    ///< elements from one row to the next
  const void* right = nullptr;  ///< [width, rank], or as a kernel says; dense, aligned to 16 bytes
  int rank = 0;                 ///< 8 or 16
  float scale = 0;
};

/// Whether kernels that multiply 16-bit elements by tensor cores were compiled for a GPU of this compute
/// capability, 10 * major + minor: 8.0 at least.
bool has_tensor_core_kernels(int capability);

}  // namespace lorikeet::ops
