#pragma once

#include <cstdint>

// The small fp32 products of recurrences that are computed in chunks of tokens on a CPU, and their triangular
// systems. Operands are read where they lie: nothing is packed, as each is used a few times only. All sizes
// are multiples of kStep; a caller pads with zeros.
namespace lorikeet::ops::cpu::chunked {

inline constexpr std::int64_t kStep = 16;

inline std::int64_t padded(std::int64_t n) { return (n + kStep - 1) / kStep * kStep; }

/// A product's left operand: element [i, k] is data[i * row_stride + k * inner_stride].
struct Left {
  const float* data;
  std::int64_t row_stride, inner_stride;

  Left at(std::int64_t row, std::int64_t inner) const {
    return {data + row * row_stride + inner * inner_stride, row_stride, inner_stride};
  }
};
inline Left rows_of(const float* data, std::int64_t stride) { return {data, stride, 1}; }
inline Left columns_of(const float* data, std::int64_t stride) { return {data, 1, stride}; }

/// A matrix of dense rows `stride` elements apart.
struct Right {
  const float* data;
  std::int64_t stride;
};
struct Result {
  float* data;
  std::int64_t stride;
};

/// c [m, n] = keep * c + a [m, k] b [k, n]. With keep 0, c is not read.
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Left a, Right b, float keep, Result c);

/// The blocks of c [n, n] = a [n, k] b [k, n] that hold an element on or below the diagonal, in blocks of
/// kStep; the others stay as they are.
void multiply_to_lower(std::int64_t n, std::int64_t k, Left a, Right b, Result c);

/// c [m, n] = keep * c + a b, b: [m, n], where a [m, m] is lower triangular, stored in rows with zeros above
/// the diagonal inside the blocks of kStep on it. What lies above those blocks is not read.
void multiply_lower(std::int64_t m, std::int64_t n, Right a, Right b, float keep, Result c);
/// The same with a^T in place of a.
void multiply_lower_transposed(std::int64_t m, std::int64_t n, Right a, Right b, float keep, Result c);

/// x [m, n] = (1 - a)^-1 x for a [m, m] strictly lower triangular, stored as above: forward substitution.
void solve_lower(std::int64_t m, std::int64_t n, Right a, Result x);
/// x = (1 - a^T)^-1 x: backward substitution.
void solve_lower_transposed(std::int64_t m, std::int64_t n, Right a, Result x);

/// out [columns, rows] = in^T for in [rows, columns].
void transpose(std::int64_t rows, std::int64_t columns, Right in, Result out);

}  // namespace lorikeet::ops::cpu::chunked
