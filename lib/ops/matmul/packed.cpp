#include "ops/matmul/packed.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/reference_ops.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

using tiles::Kernel;
using tiles::Operand;

// Sizes are in elements of 4 bytes (tiles::Kernel). A panel of the right operand has about 2^19, 2 MB; at
// least 512 columns, because the left operand is packed anew for each panel, and at most 2,048, so that a
// thread's sums stay in its cache.
constexpr std::int64_t kPanel = std::int64_t{1} << 19, kLeastColumns = 512, kMostColumns = 2048;
// Longer sums are formed in parts, of which each has a panel of its own; 512 columns of one take 8 MB.
constexpr std::int64_t kMostInner = 4096;
// A sliver's part that is multiplied in one go: 32 KB, or of pairs, whose kernel is measured to be as fast
// from the second cache and then has fewer sums to wait, 128 KB.
constexpr std::int64_t kSliverPart = std::int64_t{1} << 13, kSliverPartOfPairs = std::int64_t{1} << 15;
// The left operand's tiles that are packed at a time: up to 16, in 256 KB, but 4 at least.
constexpr std::int64_t kMostTiles = 16, kLeastTiles = 4, kBlock = std::int64_t{1} << 16;
// Elements of each lane of the right operand that are packed in one go.
constexpr std::int64_t kPackedPart = 64;
// Products of pairs of numbers below which a thread isn't worth waking.
constexpr std::int64_t kWorkOfThread = std::int64_t{1} << 18;

std::int64_t parts(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// A matrix whose first dimension are the lanes (or its second, `by_columns`).
Operand operand(const at::Tensor& matrix, bool by_columns) {
  Operand of{.data = matrix.is_meta() ? nullptr : matrix.const_data_ptr(),
             .is_bf16 = matrix.scalar_type() == at::kBFloat16,
             .inner = matrix.size(by_columns ? 0 : 1),
             .lane_stride = matrix.stride(by_columns ? 1 : 0),
             .inner_stride = matrix.stride(by_columns ? 0 : 1)};
  // A dimension of one element has any stride.
  if (matrix.size(by_columns ? 0 : 1) == 1) of.inner_stride = 1;
  if (matrix.size(by_columns ? 1 : 0) == 1) of.lane_stride = 1;
  return of;
}

// A matrix that can be packed as it lies.
at::Tensor packable(const at::Tensor& matrix) {
  const bool strided =
      matrix.stride(0) == 1 || matrix.stride(1) == 1 || matrix.size(0) == 1 || matrix.size(1) == 1;
  return strided ? matrix : matrix.contiguous();
}

// A term as the panels see it.
struct Term {
  Operand left, right;
  std::int64_t begin, end;  // columns
  std::int64_t rank;        // in elements
  std::int64_t at;          // of its packed columns in a sliver, in elements of a lane
  float scale;
};

class PackedProduct {
 public:
  PackedProduct(at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                const std::vector<PackedTerm>& terms, const at::Tensor& bias, std::optional<double> add_scale,
                const Kernel& kernel)
      : out_(out),
        left_(packable(left)),
        right_(packable(right)),
        bias_(bias),
        add_scale_(add_scale),
        kernel_(kernel),
        rows_(left.size(0)),
        columns_(right.size(1)),
        inner_(parts(left.size(1), kernel.numbers())),
        part_(
            parts(std::max<std::int64_t>(inner_, 1), parts(std::max<std::int64_t>(inner_, 1), kMostInner))) {
    std::int64_t ranks = 0;
    for (const PackedTerm& term : terms) {
      held_.push_back(packable(term.left));
      held_.push_back(packable(term.right));
      terms_.push_back({.left = operand(held_[held_.size() - 2], /*by_columns=*/false),
                        .right = operand(held_.back(), /*by_columns=*/true),
                        .begin = term.begin,
                        .end = term.begin + term.right.size(1),
                        .rank = parts(term.left.size(1), kernel.numbers()),
                        .at = part_ + ranks,
                        .scale = static_cast<float>(term.scale)});
      ranks += terms_.back().rank;
    }
    left_of_ = operand(left_, /*by_columns=*/false);
    right_of_ = operand(right_, /*by_columns=*/true);
    step_ = parts(part_, parts(part_, (kernel_.pairs ? kSliverPartOfPairs : kSliverPart) / kernel_.columns));
    const std::int64_t wanted = std::clamp(kPanel / part_, kLeastColumns, kMostColumns);
    slivers_ = parts(std::min(wanted, columns_), kernel_.columns);
    stride_ = slivers_ * kernel_.columns;
    sliver_size_ = (part_ + ranks) * kernel_.columns;
    row_tiles_ = parts(rows_, kernel_.rows);
    block_ = std::min(std::clamp(kBlock / (kernel_.rows * step_), kLeastTiles, kMostTiles), row_tiles_);
    // A thread's part of the left operand, that of the terms, then sums, unless these wait for further parts.
    const bool in_parts = inner_ > part_;
    terms_at_ = block_ * kernel_.rows * step_ + tiles::kSlack;
    left_size_ = terms_at_ + block_ * kernel_.rows * ranks + tiles::kSlack;
    thread_size_ = left_size_ + (in_parts || step_ >= inner_ ? 0 : block_ * kernel_.rows * stride_);
    const auto fp32 = out.options().dtype(at::kFloat);
    panel_ = at::empty({slivers_ * sliver_size_}, fp32);
    if (in_parts) sums_ = at::empty({row_tiles_ * kernel_.rows * stride_}, fp32);
    scratch_ = at::empty({vector::threads_for(out) * thread_size_}, fp32);
  }

  void run() {
    for (std::int64_t begin = 0; begin < columns_; begin += stride_) {
      std::int64_t k = 0;
      do {
        const std::int64_t end = std::min(begin + stride_, columns_);
        run_panel({begin, end, k, std::min(k + part_, inner_)});
        k += part_;
      } while (k < inner_);
    }
  }

 private:
  // Columns [begin, end) of the right operand, and what is summed of them: inner elements [first, last).
  struct Panel {
    std::int64_t begin, end, first, last;
  };

  void run_panel(const Panel& panel) {
    const std::int64_t count = parts(panel.end - panel.begin, kernel_.columns);
    at::parallel_for(0, count, grain(sliver_size_),
                     [&](std::int64_t from, std::int64_t to) { pack_slivers(panel, from, to); });
    // Rows are shared out among threads, but where there are fewer tiles of them than slivers.
    const bool by_rows = row_tiles_ >= count;
    const std::int64_t work = part_ * (by_rows ? kernel_.rows * stride_ : kernel_.columns * rows_);
    at::parallel_for(0, by_rows ? row_tiles_ : count, grain(work), [&](std::int64_t from, std::int64_t to) {
      if (by_rows) {
        multiply(panel, from, to, 0, count);
      } else {
        multiply(panel, 0, row_tiles_, from, to);
      }
    });
  }

  // How many pieces of this much work are worth a thread.
  static std::int64_t grain(std::int64_t work) {
    return std::max<std::int64_t>(1, kWorkOfThread / std::max<std::int64_t>(work, 1));
  }

  // Part by part of the inner dimension: where columns lie side by side, so do those of the next sliver.
  void pack_slivers(const Panel& panel, std::int64_t from, std::int64_t to) {
    float* const packed = panel_.data_ptr<float>();
    for (std::int64_t k = panel.first; k < panel.last; k += kPackedPart) {
      for (std::int64_t s = from; s < to; ++s) {
        tiles::pack(right_of_, panel.begin + s * kernel_.columns, columns_, k,
                    std::min(kPackedPart, panel.last - k), kernel_.columns, kernel_.pairs,
                    packed + s * sliver_size_ + (k - panel.first) * kernel_.columns);
      }
    }
    if (panel.first > 0) return;
    for (std::int64_t s = from; s < to; ++s) {
      const std::int64_t first = panel.begin + s * kernel_.columns;
      for (const Term& term : terms_) {
        if (!reaches(term, first)) continue;
        tiles::pack(term.right, first - term.begin, term.end - term.begin, 0, term.rank, kernel_.columns,
                    kernel_.pairs, packed + s * sliver_size_ + term.at * kernel_.columns);
      }
    }
  }

  bool reaches(const Term& term, std::int64_t first) const {
    return first < term.end && first + kernel_.columns > term.begin;
  }

  // Tiles [from, to) of rows, slivers [first, last) of the panel.
  void multiply(const Panel& panel, std::int64_t from, std::int64_t to, std::int64_t first,
                std::int64_t last) {
    float* const left = scratch_.data_ptr<float>() + at::get_thread_num() * thread_size_;
    const float* const right = panel_.data_ptr<float>() + first * sliver_size_;
    for (std::int64_t begin = from; begin < to; begin += block_) {
      tiles::Block block{.tiles = std::min(block_, to - begin), .slivers = last - first, .stride = stride_};
      block.sums = sums_.defined()
                       ? sums_.data_ptr<float>() + begin * kernel_.rows * stride_ + first * kernel_.columns
                       : left + left_size_;
      block.out = output(begin * kernel_.rows, panel.begin + first * kernel_.columns);
      const auto terms = panel.first == 0 ? pack_terms(panel, begin, block.tiles, first, last, left)
                                          : std::vector<tiles::TermAddend>();
      block.terms = terms;
      std::int64_t k = panel.first;
      do {
        const std::int64_t count = std::min(step_, panel.last - k);
        pack_left(left_of_, begin, block.tiles, k, count, left);
        block.product = {.left = left,
                         .left_stride = kernel_.rows * count,
                         .right = right + (k - panel.first) * kernel_.columns,
                         .right_stride = sliver_size_,
                         .inner = count};
        block.first = k == 0;
        block.last = k + count >= inner_;
        tiles::multiply(block, kernel_);
        k += step_;
      } while (k < panel.last);
    }
  }

  void pack_left(const Operand& of, std::int64_t block, std::int64_t count, std::int64_t first,
                 std::int64_t inner, float* to) const {
    for (std::int64_t t = 0; t < count; ++t) {
      tiles::pack(of, (block + t) * kernel_.rows, rows_, first, inner, kernel_.rows, kernel_.pairs,
                  to + t * kernel_.rows * inner);
    }
  }

  // The terms that reach slivers [first, last), their left operands packed behind that of the product.
  std::vector<tiles::TermAddend> pack_terms(const Panel& panel, std::int64_t block, std::int64_t count,
                                            std::int64_t first, std::int64_t last, float* left) const {
    std::vector<tiles::TermAddend> addends;
    float* packed = left + terms_at_;
    for (const Term& term : terms_) {
      const auto sliver_of = [&](std::int64_t column) { return (column - panel.begin) / kernel_.columns; };
      const std::int64_t from = std::max(first, sliver_of(std::max(term.begin, panel.begin)));
      const std::int64_t to = std::min(last, term.end <= panel.begin ? 0 : sliver_of(term.end - 1) + 1);
      if (from >= to || term.rank == 0) continue;
      pack_left(term.left, block, count, 0, term.rank, packed);
      addends.push_back(
          {.product = {.left = packed,
                       .left_stride = kernel_.rows * term.rank,
                       .right = panel_.data_ptr<float>() + first * sliver_size_ + term.at * kernel_.columns,
                       .right_stride = sliver_size_,
                       .inner = term.rank},
           .first = from - first,
           .last = to - first,
           .scale = term.scale});
      packed += block_ * kernel_.rows * term.rank;
    }
    return addends;
  }

  // Of the rows and columns from these on.
  tiles::Output output(std::int64_t row, std::int64_t column) {
    return {.data = static_cast<char*>(out_.mutable_data_ptr()) +
                    (row * out_.stride(0) + column) * static_cast<std::int64_t>(out_.element_size()),
            .is_bf16 = out_.scalar_type() == at::kBFloat16,
            .stride = out_.stride(0),
            .rows = rows_ - row,
            .columns = columns_ - column,
            .bias = bias_.defined() ? bias_.const_data_ptr<float>() + column : nullptr,
            .add = add_scale_.has_value(),
            .scale = static_cast<float>(add_scale_.value_or(1))};
  }

  at::Tensor out_, left_, right_, bias_;
  std::vector<at::Tensor> held_;
  std::optional<double> add_scale_;
  Kernel kernel_;
  std::int64_t rows_, columns_, inner_, part_;
  std::vector<Term> terms_;
  Operand left_of_, right_of_;
  std::int64_t step_ = 0, slivers_ = 0, stride_ = 0, sliver_size_ = 0, row_tiles_ = 0;
  std::int64_t block_ = 0, terms_at_ = 0, left_size_ = 0, thread_size_ = 0;
  at::Tensor panel_, sums_, scratch_;
};

}  // namespace

bool packed_products() { return !reference_ops() && tiles::fast_on_cpu(); }

bool packs(const at::Tensor& tensor) {
  return tensor.dim() == 2 && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

void multiply_packed(at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                     const std::vector<PackedTerm>& terms, const at::Tensor& bias,
                     std::optional<double> add_scale, const Kernel& kernel) {
  if (out.numel() == 0) return;
  PackedProduct product(out, left, right, terms, bias, add_scale, kernel);
  if (!out.is_meta()) product.run();
}

}  // namespace lorikeet::ops
