#include "ops/matmul/widened.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ops/dry_run.h"
#include "ops/matmul/packed_products.h"
#include "ops/matmul/panels.h"
#include "ops/part.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

bool is_bf16(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16; }

// Whether kernels of our own multiply x with a weight that isn't stored as numbers: it is decoded to x's
// dtype.
bool packs_decoded(const at::Tensor& out, const at::Tensor& x) {
  return packs_widened(out, x, x) && is_bf16(x);
}

// The rows of a weight as numbers that a kernel multiplies: panels of them in one buffer, widened or decoded,
// or, where they are stored so, all at once and in place.
class WideRows {
 public:
  explicit WideRows(const at::Tensor& w)
      : rows_(w.size(0)), step_(std::max<std::int64_t>(w.size(0), 1)), dense_(w) {
    if (!at::isReducedFloatingType(w.scalar_type())) return;
    step_ = panel_rows(w.size(1));
    make_buffer(w.size(1), w.options().dtype(at::kFloat));
  }
  WideRows(const RowSource& source, const at::TensorOptions& options)
      : WideRows(source, options, panel_rows(source.cols)) {}
  WideRows(const RowSource& source, const at::TensorOptions& options, std::int64_t step)
      : rows_(source.rows), step_(step), source_(&source) {
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

// Rows of a weight that are decoded at a time for kernels of our own, 2 MB of bf16: as many at least as
// columns are worth packing the other operand for.
std::int64_t decoded_rows(std::int64_t cols) {
  constexpr std::int64_t kElements = std::int64_t{1} << 20, kLeast = 512, kStep = 64;
  return std::max(kLeast, (kElements / std::max<std::int64_t>(cols, 1) + kStep - 1) / kStep * kStep);
}

// out = x w^T + bias + terms, the weight decoded so many rows at a time.
void decoded_nt(at::Tensor& out, const at::Tensor& x, const RowSource& source,
                const std::vector<LowRankTerm>& terms, const at::Tensor& bias) {
  const WideRows w(source, x.options(), decoded_rows(source.cols));
  const auto wide_bias = bias.defined() ? bias.to(at::kFloat) : bias;
  for (std::int64_t begin = 0; begin < w.size(); begin += w.step()) {
    const auto end = std::min(begin + w.step(), w.size());
    auto columns = out.slice(1, begin, end);
    multiply_packed(columns, x, w.panel(begin, end).t(), packed_nt_terms(terms, begin, end),
                    bias.defined() ? wide_bias.slice(0, begin, end) : bias);
  }
}

// out = y w + terms, the weight decoded so many rows at a time: where these aren't all, sums wait in fp32.
void decoded_nn(at::Tensor& out, const at::Tensor& y, const RowSource& source,
                const std::vector<LowRankTerm>& terms) {
  const WideRows w(source, y.options(), decoded_rows(source.cols));
  const bool at_once = w.size() <= w.step();
  const bool direct = at_once || out.scalar_type() == at::kFloat;
  auto sums = direct ? out : at::empty(out.sizes(), out.options().dtype(at::kFloat));
  std::int64_t begin = 0;
  do {
    const auto end = std::min(begin + w.step(), w.size());
    const bool first = begin == 0;
    multiply_packed(sums, y.slice(1, begin, end), w.panel(begin, end),
                    first ? packed_nn_terms(terms) : std::vector<PackedTerm>(), {},
                    first ? std::nullopt : std::optional<double>(1));
    begin = end;
  } while (begin < w.size());
  if (!direct) out.copy_(sums);
}

}  // namespace

at::Tensor widen(const at::Tensor& tensor) { return tensor.to(wide_type(tensor)); }

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
    auto columns = part(panel, 1, from - begin, to - begin);
    add_product(columns, term.left, part(term.right, 0, from - term.begin, to - term.begin).t(), term.scale);
  }
  if (bias.defined()) panel.add_(part(bias, 0, begin, end));
}

void widened_nt(at::Tensor& out, const at::Tensor& x, const at::Tensor& w,
                const std::vector<LowRankTerm>& terms, const at::Tensor& bias) {
  if (packs_widened(out, x, w)) return packed_nt(out, x, w, terms, bias, tiles::kernel_of_cpu());
  const auto input = widen(x);
  nt_panels(out, input, terms, bias, [&] { return WideRows(w); });
}

void widened_nt(at::Tensor& out, const at::Tensor& x, const RowSource& w,
                const std::vector<LowRankTerm>& terms, const at::Tensor& bias) {
  if (packs_decoded(out, x)) return decoded_nt(out, x, w, terms, bias);
  const auto input = widen(x);
  nt_panels(out, input, terms, bias, [&] { return WideRows(w, input.options()); });
}

void widened_nn(at::Tensor& out, const at::Tensor& y, const at::Tensor& w,
                const std::vector<LowRankTerm>& terms) {
  if (packs_widened(out, y, w)) return packed_nn(out, y, w, terms, tiles::kernel_of_cpu());
  nn_panels(out, y, WideRows(w), terms);
}

void widened_nn(at::Tensor& out, const at::Tensor& y, const RowSource& w,
                const std::vector<LowRankTerm>& terms) {
  if (packs_decoded(out, y)) return decoded_nn(out, y, w, terms);
  nn_panels(out, y, WideRows(w, y.options().dtype(wide_type(y))), terms);
}

}  // namespace lorikeet::ops
