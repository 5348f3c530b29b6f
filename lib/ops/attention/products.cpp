#include "ops/attention/products.h"

#include <ATen/native/CPUBlas.h>

#include <algorithm>

#include "ops/matmul/matmul.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;

// For native products on a CPU without arithmetic for bf16: the same sums, slow.
void multiply_plainly(std::int64_t m, std::int64_t n, std::int64_t k, const Bf16* a, std::int64_t lda,
                      const Bf16Pair* b, std::int64_t ldb, float* c, std::int64_t ldc, bool add) {
  for (std::int64_t i = 0; i < m; ++i) {
    float* row = c + i * ldc;
    if (!add) std::fill(row, row + n, 0.0F);
    for (std::int64_t pair = 0; pair < k / 2; ++pair) {
      const float even = vector::load(a[i * lda + 2 * pair]), odd = vector::load(a[i * lda + 2 * pair + 1]);
      for (std::int64_t j = 0; j < n; ++j) {
        const std::uint32_t bits = b[pair * ldb + j].bits;
        row[j] += even * vector::load(Bf16{static_cast<std::uint16_t>(bits)}) +
                  odd * vector::load(Bf16{static_cast<std::uint16_t>(bits >> 16)});
      }
    }
  }
}

}  // namespace

bool multiplies_bf16(const at::Tensor& tensor, std::int64_t head_dim) {
  return tensor.scalar_type() == at::kBFloat16 && head_dim % 2 == 0 &&
         multiplies_natively(at::kBFloat16, tensor.device());
}

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
              const float* b, std::int64_t ldb, float* c, std::int64_t ldc, bool add) {
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add, a, b, c, /*is_vnni=*/false);
}

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Bf16* a, std::int64_t lda,
              const Bf16Pair* b, std::int64_t ldb, float* c, std::int64_t ldc, bool add) {
  if (!native_by_feature(at::kBFloat16)) return multiply_plainly(m, n, k, a, lda, b, ldb, c, ldc, add);
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add, reinterpret_cast<const at::BFloat16*>(a),
                              reinterpret_cast<const at::BFloat16*>(b), c, /*is_vnni=*/true);
}

void release_products() { at::native::cpublas::brgemm_release(); }

}  // namespace lorikeet::ops::cpu
