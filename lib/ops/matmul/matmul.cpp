#include "ops/matmul/matmul.h"

#include <ATen/ATen.h>
#include <ATen/cpu/Utils.h>

#include <atomic>
#include <string>

#include "ops/dry_run.h"
#include "ops/matmul/packed_products.h"
#include "ops/matmul/widened.h"
#include "ops/part.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

std::atomic<HalfProducts> chosen_products{HalfProducts::kByFeature};

bool cpu_has(const char* feature) {
  const auto features = at::cpu::get_cpu_capabilities();
  const auto found = features.find(feature);
  return found != features.end() && found->second.isBool() && found->second.toBool();
}

bool cpu_has_amx() {
  static const bool has = cpu_has("amx_bf16");
  return has;
}

bool cpu_has_bf16() {
  static const bool has = cpu_has_amx() || cpu_has("avx512_bf16");
  return has;
}

bool native_product(const at::Tensor& left, const at::Tensor& right) {
  return left.scalar_type() == right.scalar_type() && multiplies_natively(left.scalar_type(), left.device());
}

// out = left right, in the operands' dtype before it is rounded to out's.
void product_into(at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  if (out.scalar_type() == left.scalar_type()) {
    at::mm_out(out, left, right);
  } else {
    out.copy_(at::mm(left, right));
  }
}

// Whether the addends are computed before the large product, which is then added to them. On a GPU either
// order moves as many bytes, but the large product reads the addends while it multiplies, where an addend
// that comes behind it reads and writes with nothing else to do. `of_columns` is the dimension of a term's
// right operand that lies along out's columns; each of these needs an addend.
bool terms_come_first(const at::Tensor& out, const at::Tensor& left, const std::vector<LowRankTerm>& terms,
                      std::int64_t of_columns) {
  if (kernels_of(left) != at::kCUDA || out.scalar_type() != left.scalar_type() || terms.empty()) return false;
  std::int64_t covered = 0;
  for (const auto& term : terms) {
    if (term.begin != covered) return false;
    covered += term.right.size(of_columns);
  }
  return covered == out.size(1);
}

// columns = scale left right, whatever is in them.
void write_product(at::Tensor columns, const at::Tensor& left, const at::Tensor& right, double scale) {
  at::addmm_out(columns, columns, left, right, /*beta=*/0, /*alpha=*/scale);
}

}  // namespace

bool multiplies_natively(at::ScalarType dtype, at::Device device) {
  if (device.is_meta() && dry_target() != nullptr) {
    const DryTarget& target = *dry_target();
    return !at::isReducedFloatingType(dtype) || target.device != at::kCPU || target.native_products;
  }
  if (!at::isReducedFloatingType(dtype) || !device.is_cpu()) return true;
  switch (chosen_products.load(std::memory_order_relaxed)) {
    case HalfProducts::kNative: return true;
    case HalfProducts::kWidened: return false;
    case HalfProducts::kByFeature: break;
  }
  return native_by_feature(dtype);
}

bool native_by_feature(at::ScalarType dtype) { return dtype == at::kBFloat16 && cpu_has_bf16(); }

bool native_products_are_own() { return tiles::fast_pairs_on_cpu() && !cpu_has_amx(); }

void set_half_products(HalfProducts choice) { chosen_products.store(choice); }

HalfProducts half_products() { return chosen_products.load(); }

void set_cuda_products(bool tf32) {
  at::Context& context = at::globalContext();
  context.setFloat32MatmulPrecision(tf32 ? "high" : "highest");
  context.setAllowFP16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  context.setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
}

at::ScalarType product_type(const at::Tensor& x) {
  return multiplies_natively(x.scalar_type(), x.device()) ? x.scalar_type() : wide_type(x);
}

at::Tensor matmul_operand(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && packed_products() ? x : x.to(product_type(x));
}

at::Tensor matmul_nt(const at::Tensor& x, const at::Tensor& w) {
  auto out = at::empty({x.size(0), w.size(0)}, x.options());
  matmul_nt_out(out, x, w);
  return out;
}

at::Tensor matmul_nn(const at::Tensor& y, const at::Tensor& w) {
  auto out = at::empty({y.size(0), w.size(1)}, y.options());
  matmul_nn_out(out, y, w);
  return out;
}

at::Tensor matmul_tn(const at::Tensor& y, const at::Tensor& x) {
  auto out = at::zeros({y.size(1), x.size(1)}, y.options().dtype(wide_type(y)));
  matmul_tn_add(out, y, x, 1);
  return out;
}

void matmul_nt_out(at::Tensor& out, const at::Tensor& x, const at::Tensor& w,
                   const std::vector<LowRankTerm>& terms, const at::Tensor& bias) {
  if (!native_product(x, w)) return widened_nt(out, x, w, terms, bias);
  if (x.size(0) >= kLeastPackedRows && packs_pairs(out, x, w, terms))
    return packed_nt(out, x, w, terms, bias, tiles::kPairs);
  if (terms_come_first(out, x, terms, /*of_columns=*/0)) {
    for (const auto& term : terms)
      write_product(part(out, 1, term.begin, term.begin + term.right.size(0)), term.left, term.right.t(),
                    term.scale);
    add_product(out, x, w.t(), /*scale=*/1);
    return add_terms(out, 0, w.size(0), {}, bias);
  }
  product_into(out, x, w.t());
  add_terms(out, 0, w.size(0), terms, bias);
}

void matmul_nt_out(at::Tensor& out, const at::Tensor& x, const RowSource& w,
                   const std::vector<LowRankTerm>& terms, const at::Tensor& bias) {
  widened_nt(out, x, w, terms, bias);
}

void matmul_add_terms(at::Tensor& out, const std::vector<LowRankTerm>& terms, const at::Tensor& bias) {
  std::vector<LowRankTerm> converted;
  converted.reserve(terms.size());
  const at::ScalarType dtype = out.scalar_type();
  for (const auto& term : terms)
    converted.push_back({term.left.to(dtype), term.right.to(dtype), term.begin, term.scale});
  add_terms(out, 0, out.size(1), converted, bias);
}

void matmul_nn_out(at::Tensor& out, const at::Tensor& y, const at::Tensor& w,
                   const std::vector<LowRankTerm>& terms) {
  if (!native_product(y, w)) return widened_nn(out, y, w, terms);
  if (y.size(0) >= kLeastPackedRows && packs_pairs(out, y, w, terms))
    return packed_nn(out, y, w, terms, tiles::kPairs);
  if (terms_come_first(out, y, terms, /*of_columns=*/1)) {
    write_product(out, terms.front().left, terms.front().right, terms.front().scale);
    return add_product(out, y, w, /*scale=*/1);
  }
  product_into(out, y, w);
  for (const auto& term : terms) add_product(out, term.left, term.right, term.scale);
}

void matmul_nn_out(at::Tensor& out, const at::Tensor& y, const RowSource& w,
                   const std::vector<LowRankTerm>& terms) {
  widened_nn(out, y, w, terms);
}

void matmul_tn_add(at::Tensor& out, const at::Tensor& y, const at::Tensor& x, double scale) {
  if (kernels_of(x) == at::kCUDA && at::isReducedFloatingType(x.scalar_type())) {
    if (out.scalar_type() == at::kFloat) {
      if (!x.is_meta()) at::addmm_out(out, out, y.t(), x, at::kFloat, /*beta=*/1, /*alpha=*/scale);
      return;
    }
    const auto product =
        x.is_meta() ? at::empty(out.sizes(), out.options().dtype(at::kFloat)) : at::mm(y.t(), x, at::kFloat);
    out.add_(product, scale);
    return;
  }
  if (out.scalar_type() == at::kFloat && packs_widened(out, y, x)) {
    return packed_tn_add(out, y, x, scale);
  }
  if (at::isReducedFloatingType(out.scalar_type())) {
    out.add_(at::mm(widen(y).t(), widen(x)), scale);
    return;
  }
  // ATen has no 16-bit product with an fp32 sum on CPUs; a gradient's products are skinny, so widening is
  // cheap.
  out.addmm_(widen(y).t(), widen(x), /*beta=*/1, /*alpha=*/scale);
}

}  // namespace lorikeet::ops
