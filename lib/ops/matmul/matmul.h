#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lorikeet::ops {

// Matrix products with one meaning everywhere: products are summed in fp32 (fp64 for fp64) and rounded once
// to the output's dtype. Operands are row-major, their rows may be strided. On a CPU 16-bit operands are
// multiplied natively, or widened and multiplied in fp32: equally accurate, and which is faster depends on
// the CPU (lib/probe measures it). How they are widened is said in widened.h. This folder is the only place
// that knows.

/// A low-rank addend of a product's output columns [begin, begin + width of the addend).
struct LowRankTerm {
  at::Tensor left;  ///< [M, r]
  at::Tensor
      right;  ///< [n, r] in matmul_nt_out, which adds left right^T; [r, n] in matmul_nn_out: left right
  std::int64_t begin = 0;
  double scale = 1;  ///< multiplies the addend
};

/// The dtype that products with x are summed and, where they aren't rounded, kept in: x's own where they are
/// done natively, else fp32 (fp64 for fp64).
at::ScalarType product_type(const at::Tensor& x);

/// `x` in the form that products read it in: fp32 where libtorch's kernels multiply widened operands, else x
/// itself. For operands used by more than one product. Every function here takes it in place of x.
at::Tensor matmul_operand(const at::Tensor& x);

/// x [M, K], w [N, K] -> x w^T [M, N] in x's dtype.
at::Tensor matmul_nt(const at::Tensor& x, const at::Tensor& w);

/// y [M, N], w [N, K] -> y w [M, K] in y's dtype.
at::Tensor matmul_nn(const at::Tensor& y, const at::Tensor& w);

/// y [M, N], x [M, K] -> y^T x [N, K] in fp32 (fp64 for fp64 operands).
at::Tensor matmul_tn(const at::Tensor& y, const at::Tensor& x);

/// out [M, N] = x w^T + bias (undefined or [N]) + terms. `out` has any floating dtype; each of its elements
/// is rounded once where products are widened. On a GPU terms that cover all columns come first, rounded to
/// out's dtype, and the product is added to them.
void matmul_nt_out(at::Tensor& out, const at::Tensor& x, const at::Tensor& w,
                   const std::vector<LowRankTerm>& terms = {}, const at::Tensor& bias = {});

/// out [M, N] += terms + bias (undefined or [N]), in out's dtype.
void matmul_add_terms(at::Tensor& out, const std::vector<LowRankTerm>& terms, const at::Tensor& bias);

/// out [M, K] = y w + terms, which have begin = 0 and cover all columns.
void matmul_nn_out(at::Tensor& out, const at::Tensor& y, const at::Tensor& w,
                   const std::vector<LowRankTerm>& terms = {});

/// A weight [rows, cols] that isn't stored as numbers: `fill` writes its rows [begin, end) into a dense
/// `panel` [end - begin, cols].
struct RowSource {
  std::int64_t rows, cols;
  std::function<void(std::int64_t begin, std::int64_t end, const at::Tensor& panel)> fill;
};

/// The same products with such a weight, widened, over panels of its rows. `fill` is given panels of x's
/// dtype or of fp32 (fp64 for fp64 operands).
void matmul_nt_out(at::Tensor& out, const at::Tensor& x, const RowSource& w,
                   const std::vector<LowRankTerm>& terms = {}, const at::Tensor& bias = {});
void matmul_nn_out(at::Tensor& out, const at::Tensor& y, const RowSource& w,
                   const std::vector<LowRankTerm>& terms = {});

/// out += scale * y^T x with out [N, K] in fp32 (fp64 for fp64 operands) or, rounded at each addition, in 16
/// bits: how weights' gradients are accumulated.
void matmul_tn_add(at::Tensor& out, const at::Tensor& y, const at::Tensor& x, double scale);

/// Whether products of `dtype` on `device` are done in that dtype (else they are widened).
bool multiplies_natively(at::ScalarType dtype, at::Device device);

/// How CUDA's libraries multiply from now on, in the whole process: fp32 matrices exactly, or with operands
/// rounded to TF32; products of 16-bit matrices are always summed in fp32 (left alone, cuBLAS may add parts
/// of a sum in 16 bits).
void set_cuda_products(bool tf32);

/// How CPUs multiply 16-bit matrices. kByFeature: natively in bf16 where the CPU has arithmetic for it (AMX
/// or AVX512-BF16), else widened.
enum class HalfProducts { kByFeature, kNative, kWidened };

/// How they do from now on, in the whole process; kByFeature at first.
void set_half_products(HalfProducts choice);
HalfProducts half_products();

/// What kByFeature means for matrices of `dtype` on this CPU: whether they are multiplied natively.
bool native_by_feature(at::ScalarType dtype);

/// Whether this CPU's native products of bf16 are done by kernels of our own, unless they have few rows:
/// where it has avx512_bf16 and no AMX. Else libtorch does them, by oneDNN.
bool native_products_are_own();

}  // namespace lorikeet::ops
