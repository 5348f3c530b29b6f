#include "ops/matmul/packed.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/dry_run.h"
#include "ops/reference_ops.h"

namespace lorikeet::ops {
namespace {

using tiles::Operand;
using tiles::TileShape;

// A panel of the right operand has about 2^19 floats, 2 MB; at least 512 columns, because the left operand is
// packed anew for each panel, and at most 2,048, so that a thread's sums stay in its cache.
constexpr std::int64_t kPanel = std::int64_t{1} << 19, kLeastColumns = 512, kMostColumns = 2048;
// Longer sums are formed in parts, of which each has a panel of its own; 512 columns of one take 8 MB.
constexpr std::int64_t kMostInner = 4096;
// A sliver's part that is multiplied in one go, in floats: 32 KB.
constexpr std::int64_t kSliverPart = 8192;
constexpr std::int64_t kTilesOfBlock = 16;
// Products of pairs of numbers below which a thread isn't worth waking.
constexpr std::int64_t kWorkOfThread = std::int64_t{1} << 18;

std::int64_t parts(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// A matrix whose first dimension are the lanes (or its second, `by_columns`).
Operand operand(const at::Tensor& matrix, bool by_columns) {
  Operand of{.data = matrix.is_meta() ? nullptr : matrix.const_data_ptr(),
             .is_bf16 = matrix.scalar_type() == at::kBFloat16,
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
  std::int64_t rank;
  std::int64_t at;  // of its packed columns in a sliver, in inner elements
  float scale;
};

class PackedProduct {
 public:
  PackedProduct(at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                const std::vector<PackedTerm>& terms, const at::Tensor& bias, std::optional<double> add_scale,
                TileShape shape)
      : out_(out),
        left_(packable(left)),
        right_(packable(right)),
        bias_(bias),
        add_scale_(add_scale),
        shape_(shape),
        rows_(left.size(0)),
        columns_(right.size(1)),
        inner_(left.size(1)),
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
                        .rank = term.left.size(1),
                        .at = part_ + ranks,
                        .scale = static_cast<float>(term.scale)});
      ranks += terms_.back().rank;
      most_rank_ = std::max(most_rank_, terms_.back().rank);
    }
    left_of_ = operand(left_, /*by_columns=*/false);
    right_of_ = operand(right_, /*by_columns=*/true);
    step_ = parts(part_, parts(part_, kSliverPart / shape_.columns));
    const std::int64_t wanted = std::clamp(kPanel / part_, kLeastColumns, kMostColumns);
    slivers_ = parts(std::min(wanted, columns_), shape_.columns);
    stride_ = slivers_ * shape_.columns;
    sliver_size_ = (part_ + ranks) * shape_.columns;
    row_tiles_ = parts(rows_, shape_.rows);
    block_ = std::min(kTilesOfBlock, row_tiles_);
    // A thread's part of the left operand, then its sums, unless these wait for further parts.
    const bool in_parts = inner_ > part_;
    left_size_ = block_ * shape_.rows * std::max(step_, most_rank_) + tiles::kSlack;
    thread_size_ = left_size_ + (in_parts ? 0 : block_ * shape_.rows * stride_);
    const auto fp32 = out.options().dtype(at::kFloat);
    panel_ = at::empty({slivers_ * sliver_size_}, fp32);
    if (in_parts) sums_ = at::empty({row_tiles_ * shape_.rows * stride_}, fp32);
    scratch_ = at::empty({threads() * thread_size_}, fp32);
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
    const std::int64_t count = parts(panel.end - panel.begin, shape_.columns);
    at::parallel_for(0, count, grain(sliver_size_), [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t s = from; s < to; ++s) pack_sliver(panel, s);
    });
    // Rows are shared out among threads, but where there are fewer tiles of them than slivers.
    const bool by_rows = row_tiles_ >= count;
    const std::int64_t work = part_ * (by_rows ? shape_.rows * stride_ : shape_.columns * rows_);
    at::parallel_for(0, by_rows ? row_tiles_ : count, grain(work), [&](std::int64_t from, std::int64_t to) {
      if (by_rows) {
        multiply(panel, from, to, 0, count);
      } else {
        multiply(panel, 0, row_tiles_, from, to);
      }
    });
  }

  std::int64_t threads() const {
    if (out_.is_meta() && dry_target() != nullptr) return dry_target()->threads;
    return at::get_num_threads();
  }

  // How many pieces of this much work are worth a thread.
  static std::int64_t grain(std::int64_t work) {
    return std::max<std::int64_t>(1, kWorkOfThread / std::max<std::int64_t>(work, 1));
  }

  void pack_sliver(const Panel& panel, std::int64_t sliver) {
    float* const to = panel_.data_ptr<float>() + sliver * sliver_size_;
    const std::int64_t first = panel.begin + sliver * shape_.columns;
    tiles::pack(right_of_, first, columns_, panel.first, panel.last - panel.first, shape_.columns, to);
    for (const Term& term : terms_) {
      if (panel.last < inner_ || !reaches(term, first)) continue;
      float* const packed = to + term.at * shape_.columns;
      tiles::pack(term.right, first - term.begin, term.end - term.begin, 0, term.rank, shape_.columns,
                  packed);
      for (std::int64_t i = 0; i < term.rank * shape_.columns; ++i) packed[i] *= term.scale;
    }
  }

  bool reaches(const Term& term, std::int64_t first) const {
    return first < term.end && first + shape_.columns > term.begin;
  }

  // Tiles [from, to) of rows, slivers [first, last) of the panel. Terms are added with the last inner
  // elements.
  void multiply(const Panel& panel, std::int64_t from, std::int64_t to, std::int64_t first,
                std::int64_t last) {
    float* const left = scratch_.data_ptr<float>() + at::get_thread_num() * thread_size_;
    for (std::int64_t block = from; block < to; block += block_) {
      const std::int64_t count = std::min(block_, to - block);
      float* const sums =
          sums_.defined() ? sums_.data_ptr<float>() + block * shape_.rows * stride_ + first * shape_.columns
                          : left + left_size_;
      tiles::TileProduct product{.left = left,
                                 .left_tiles = count,
                                 .right_stride = sliver_size_,
                                 .slivers = last - first,
                                 .sums = sums,
                                 .stride = stride_};
      std::int64_t k = panel.first;
      do {
        product.inner = std::min(step_, panel.last - k);
        pack_left(left_of_, block, count, k, product.inner, left);
        product.right = panel_.data_ptr<float>() + first * sliver_size_ + (k - panel.first) * shape_.columns;
        product.add = k > 0;
        tiles::multiply(product, shape_);
        k += step_;
      } while (k < panel.last);
      if (panel.last < inner_) continue;
      for (const Term& term : terms_) add_term(term, product, panel.begin, block, first, last);
      store(panel.begin + first * shape_.columns, std::min(columns_, panel.begin + last * shape_.columns),
            block * shape_.rows, std::min(rows_, (block + count) * shape_.rows), sums);
    }
  }

  void pack_left(const Operand& of, std::int64_t block, std::int64_t count, std::int64_t first,
                 std::int64_t inner, float* to) const {
    for (std::int64_t t = 0; t < count; ++t) {
      tiles::pack(of, (block + t) * shape_.rows, rows_, first, inner, shape_.rows,
                  to + t * shape_.rows * inner);
    }
  }

  void add_term(const Term& term, tiles::TileProduct product, std::int64_t begin, std::int64_t block,
                std::int64_t first, std::int64_t last) {
    const auto sliver_of = [&](std::int64_t column) { return (column - begin) / shape_.columns; };
    const std::int64_t from = std::max(first, sliver_of(std::max(term.begin, begin)));
    const std::int64_t to = std::min(last, term.end <= begin ? 0 : sliver_of(term.end - 1) + 1);
    if (from >= to || term.rank == 0) return;
    float* const left = scratch_.data_ptr<float>() + at::get_thread_num() * thread_size_;
    pack_left(term.left, block, product.left_tiles, 0, term.rank, left);
    product.inner = term.rank;
    product.right = panel_.data_ptr<float>() + from * sliver_size_ + term.at * shape_.columns;
    product.slivers = to - from;
    product.sums += (from - first) * shape_.columns;
    product.add = true;
    tiles::multiply(product, shape_);
  }

  void store(std::int64_t begin, std::int64_t end, std::int64_t from, std::int64_t to, const float* sums) {
    const float* const bias = bias_.defined() ? bias_.const_data_ptr<float>() + begin : nullptr;
    for (std::int64_t row = from; row < to; ++row, sums += stride_) {
      const std::int64_t at = row * out_.stride(0) + begin;
      if (add_scale_) {
        tiles::add_fp32(sums, static_cast<float>(*add_scale_), end - begin, out_.data_ptr<float>() + at);
      } else if (out_.scalar_type() == at::kFloat) {
        tiles::store_fp32(sums, bias, end - begin, out_.data_ptr<float>() + at);
      } else {
        tiles::store_bf16(sums, bias, end - begin, out_.data_ptr<at::BFloat16>() + at);
      }
    }
  }

  at::Tensor out_, left_, right_, bias_;
  std::vector<at::Tensor> held_;
  std::optional<double> add_scale_;
  TileShape shape_;
  std::int64_t rows_, columns_, inner_, part_;
  std::vector<Term> terms_;
  Operand left_of_, right_of_;
  std::int64_t most_rank_ = 0, step_ = 0, slivers_ = 0, stride_ = 0, sliver_size_ = 0, row_tiles_ = 0;
  std::int64_t block_ = 0, left_size_ = 0, thread_size_ = 0;
  at::Tensor panel_, sums_, scratch_;
};

}  // namespace

bool packed_products() { return !reference_ops() && tiles::fast_on_cpu(); }

bool packs(const at::Tensor& tensor) {
  return tensor.dim() == 2 && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

void multiply_packed(at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                     const std::vector<PackedTerm>& terms, const at::Tensor& bias,
                     std::optional<double> add_scale, TileShape shape) {
  if (out.numel() == 0) return;
  PackedProduct product(out, left, right, terms, bias, add_scale, shape);
  if (!out.is_meta()) product.run();
}

}  // namespace lorikeet::ops
