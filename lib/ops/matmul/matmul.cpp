#include "ops/matmul/matmul.h"

#include <ATen/ATen.h>
#include <ATen/cpu/Utils.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "ops/dry_run.h"
#include "ops/matmul/packed.h"
#include "ops/matmul/panels.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

std::atomic<HalfProducts> chosen_products{HalfProducts::kByFeature};

bool cpu_has_bf16() {
  static const bool has = [] {
    const auto features = at::cpu::get_cpu_capabilities();
    const auto on = [&](const char* name) {
      const auto found = features.find(name);
      return found != features.end() && found->second.isBool() && found->second.toBool();
    };
    return on("amx_bf16") || on("avx512_bf16");
  }();
  return has;
}

bool native_product(const at::Tensor& left, const at::Tensor& right) {
  return left.scalar_type() == right.scalar_type() && multiplies_natively(left.scalar_type(), left.device());
}

// Whether a widened product is done by kernels of our own, which bf16 operands are widened for as they are
// read: where tiles are at home, and neither matrix is fp16 or fp64.
bool packed_product(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  const auto is_bf16 = [](const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16; };
  return kernels_of(out) == at::kCPU && (is_bf16(left) || is_bf16(right)) && packs(out) && packs(left) &&
         packs(right) && tiles::fast_on_cpu();
}

// out = left right, in the operands' dtype before it is rounded to out's.
void product_into(at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  if (out.scalar_type() == left.scalar_type()) {
    at::mm_out(out, left, right);
  } else {
    out.copy_(at::mm(left, right));
  }
}

at::Tensor widen(const at::Tensor& tensor) { return tensor.to(wide_type(tensor)); }

// The rows of a weight in the dtype that products are summed in: panels of them in one buffer, or, where they
// are stored so, all at once and in place.
class WideRows {
 public:
  explicit WideRows(const at::Tensor& w)
      : rows_(w.size(0)), step_(std::max<std::int64_t>(w.size(0), 1)), dense_(w) {
    if (!at::isReducedFloatingType(w.scalar_type())) return;
    step_ = panel_rows(w.size(1));
    make_buffer(w.size(1), w.options().dtype(at::kFloat));
  }
  WideRows(const RowSource& source, const at::TensorOptions& options)
      : rows_(source.rows), step_(panel_rows(source.cols)), source_(&source) {
    make_buffer(source.cols, options);
  }

  std::int64_t size() const { return rows_; }
  std::int64_t step() const { return step_; }

  /// Valid until the next call.
  at::Tensor panel(std::int64_t begin, std::int64_t end) const {
    if (!buffer_.defined()) return dense_.slice(0, begin, end);
    auto target = buffer_.slice(0, 0, end - begin);
    if (source_ != nullptr) {
      source_->fill(begin, end, target);
    } else {
      target.copy_(dense_.slice(0, begin, end));
    }
    return target;
  }

 private:
  void make_buffer(std::int64_t cols, const at::TensorOptions& options) {
    buffer_ = at::empty({std::min(step_, rows_), cols}, options);
  }

  std::int64_t rows_, step_;
  at::Tensor dense_, buffer_;
  const RowSource* source_ = nullptr;
};

// out += scale left right. A CPU's 16-bit products are fastest without a factor of their own: `left` gets it.
void add_product(at::Tensor& out, const at::Tensor& left, const at::Tensor& right, double scale) {
  if (scale == 1 || kernels_of(out) != at::kCPU || !at::isReducedFloatingType(out.scalar_type())) {
    out.addmm_(left, right, /*beta=*/1, /*alpha=*/scale);
  } else {
    out.addmm_(left * scale, right);
  }
}

// Adds to `panel`, which is columns [begin, end) of an output, what the terms and the bias give there.
void add_terms(at::Tensor& panel, std::int64_t begin, std::int64_t end, const std::vector<LowRankTerm>& terms,
               const at::Tensor& bias) {
  for (const auto& term : terms) {
    const auto from = std::max(begin, term.begin);
    const auto to = std::min(end, term.begin + term.right.size(0));
    if (from >= to) continue;
    auto columns = panel.slice(1, from - begin, to - begin);
    add_product(columns, term.left, term.right.slice(0, from - term.begin, to - term.begin).t(), term.scale);
  }
  if (bias.defined()) panel.add_(bias.slice(0, begin, end));
}

std::vector<LowRankTerm> widen_terms(const std::vector<LowRankTerm>& terms) {
  std::vector<LowRankTerm> wide;
  wide.reserve(terms.size());
  for (const auto& term : terms)
    wide.push_back({widen(term.left), widen(term.right), term.begin, term.scale});
  return wide;
}

// out = input w^T + bias + terms, panel by panel. `make_rows` allocates the panel's buffer, after what
// widening the terms and the bias takes.
template <typename MakeRows>
void nt_panels(at::Tensor& out, const at::Tensor& input, const std::vector<LowRankTerm>& terms,
               const at::Tensor& bias, MakeRows make_rows) {
  const auto wide_terms = widen_terms(terms);
  const auto wide_bias = bias.defined() ? widen(bias) : bias;
  const WideRows w = make_rows();
  const bool direct = out.scalar_type() == input.scalar_type();
  const std::int64_t tokens = input.size(0);
  const auto sums =
      direct ? at::Tensor() : at::empty({tokens, std::min(w.step(), w.size())}, input.options());
  for (std::int64_t begin = 0; begin < w.size(); begin += w.step()) {
    const auto end = std::min(begin + w.step(), w.size());
    auto columns = out.slice(1, begin, end);
    auto panel =
        direct ? columns : sums.flatten().slice(0, 0, tokens * (end - begin)).view({tokens, end - begin});
    at::mm_out(panel, input, w.panel(begin, end).t());
    add_terms(panel, begin, end, wide_terms, wide_bias);
    if (!direct) columns.copy_(panel);
  }
}

// out = y w + terms, panel by panel.
void nn_panels(at::Tensor& out, const at::Tensor& y, const WideRows& w,
               const std::vector<LowRankTerm>& terms) {
  const auto wide = wide_type(y);
  const bool direct = out.scalar_type() == wide;
  auto sums = direct ? out : at::empty(out.sizes(), out.options().dtype(wide));
  if (w.size() == 0) sums.zero_();
  for (std::int64_t begin = 0; begin < w.size(); begin += w.step()) {
    const auto end = std::min(begin + w.step(), w.size());
    const auto rows = w.panel(begin, end);
    const auto left = y.slice(1, begin, end).to(wide);
    if (begin == 0) {
      at::mm_out(sums, left, rows);
    } else {
      sums.addmm_(left, rows);
    }
  }
  for (const auto& term : terms) add_product(sums, widen(term.left), widen(term.right), term.scale);
  if (!direct) out.copy_(sums);
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
  return x.scalar_type() == at::kBFloat16 && tiles::fast_on_cpu() ? x : x.to(product_type(x));
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
  if (native_product(x, w)) {
    product_into(out, x, w.t());
    add_terms(out, 0, w.size(0), terms, bias);
    return;
  }
  if (packed_product(out, x, w)) {
    std::vector<PackedTerm> packed;
    packed.reserve(terms.size());
    for (const LowRankTerm& term : terms)
      packed.push_back({term.left, term.right.t(), term.begin, term.scale});
    multiply_packed(out, x, w.t(), packed, bias.defined() ? bias.to(at::kFloat) : bias);
    return;
  }
  const auto input = widen(x);
  nt_panels(out, input, terms, bias, [&] { return WideRows(w); });
}

void matmul_nt_out(at::Tensor& out, const at::Tensor& x, const RowSource& w,
                   const std::vector<LowRankTerm>& terms, const at::Tensor& bias) {
  const auto input = widen(x);
  nt_panels(out, input, terms, bias, [&] { return WideRows(w, input.options()); });
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
  if (native_product(y, w)) {
    product_into(out, y, w);
    for (const auto& term : terms) add_product(out, term.left, term.right, term.scale);
    return;
  }
  if (packed_product(out, y, w)) {
    std::vector<PackedTerm> packed;
    packed.reserve(terms.size());
    for (const LowRankTerm& term : terms) packed.push_back({term.left, term.right, 0, term.scale});
    multiply_packed(out, y, w, packed);
    return;
  }
  nn_panels(out, y, WideRows(w), terms);
}

void matmul_nn_out(at::Tensor& out, const at::Tensor& y, const RowSource& w,
                   const std::vector<LowRankTerm>& terms) {
  nn_panels(out, y, WideRows(w, y.options().dtype(wide_type(y))), terms);
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
  if (out.scalar_type() == at::kFloat && packed_product(out, y, x)) {
    multiply_packed(out, y.t(), x, {}, {}, scale);
    return;
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
