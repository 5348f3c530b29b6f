#include "ops/embedding/embedding.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/check.h"
#include "ops/dry_run.h"
#include "ops/dtype.h"
#include "ops/matmul/matmul.h"
#include "ops/reference_ops.h"
#include "ops/take_rows.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "embedding";

void check_ids(const at::Tensor& ids) {
  check_tensor(ids.dim() == 1 && ids.scalar_type() == at::kLong, kOp, "an int64 vector of ids", ids);
}

// Positions of `ids` by id, equal ids in their order, and where each id's begin; the last end behind them.
struct Runs {
  std::vector<std::int64_t> positions, begins;
};

Runs runs_of(const at::Tensor& ids) {
  const auto* id = ids.const_data_ptr<std::int64_t>();
  Runs runs;
  runs.positions.resize(static_cast<std::size_t>(ids.numel()));
  std::iota(runs.positions.begin(), runs.positions.end(), 0);
  std::stable_sort(runs.positions.begin(), runs.positions.end(),
                   [&](std::int64_t a, std::int64_t b) { return id[a] < id[b]; });
  for (std::size_t i = 0; i < runs.positions.size(); ++i) {
    if (i == 0 || id[runs.positions[i]] != id[runs.positions[i - 1]])
      runs.begins.push_back(static_cast<std::int64_t>(i));
  }
  runs.begins.push_back(static_cast<std::int64_t>(runs.positions.size()));
  return runs;
}

// One id's rows belong to one thread.
template <typename Gradient, typename Dy>
void add_rows(at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& ids, double scale) {
  const Runs runs = runs_of(ids);
  const std::int64_t width = dy.size(1), rows = gradient.size(0);
  const auto* id = ids.const_data_ptr<std::int64_t>();
  const auto* from = dy.const_data_ptr<Dy>();
  auto* to = gradient.mutable_data_ptr<Gradient>();
  using Wide = std::conditional_t<std::is_same_v<Dy, double>, double, float>;
  const auto factor = static_cast<Wide>(scale);
  at::parallel_for(0, std::ssize(runs.begins) - 1, 16, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t run = first; run < last; ++run) {
      const auto r = static_cast<std::size_t>(run);
      const std::int64_t row = id[runs.positions[static_cast<std::size_t>(runs.begins[r])]];
      check(row >= 0 && row < rows, kOp, "ids in [0, rows of the table)",
            [&] { return std::to_string(row) + " of " + std::to_string(rows); });
      Gradient* sum = to + row * width;
      for (std::int64_t i = runs.begins[r]; i < runs.begins[r + 1]; ++i) {
        const Dy* addend = from + runs.positions[static_cast<std::size_t>(i)] * width;
        for (std::int64_t c = 0; c < width; ++c)
          sum[c] = static_cast<Gradient>(static_cast<Wide>(sum[c]) + factor * static_cast<Wide>(addend[c]));
      }
    }
  });
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const FrozenMatrix& table, DType out) {
  check_ids(ids);
  return table.format->lookup(table, ids, to_torch(out));
}

at::Tensor lora_embedding(const at::Tensor& ids, const FrozenMatrix& table, const LoraProjection& update,
                          DType out) {
  at::Tensor y = embedding(ids, table, out);
  check_projections(kOp, {update}, table.cols, table.rows, y.scalar_type());
  y.add_(matmul_nn(take_rows(update.b, ids), update.a), update.scale);
  return y;
}

void lora_embedding_backward(const at::Tensor& dy, const at::Tensor& ids, const LoraProjection& update,
                             std::int64_t padding) {
  check_ids(ids);
  LoraProjection p = update;
  embedding_backward(p.grad_b, matmul_nt(dy, p.a), ids, p.scale, padding);
  if (p.grad_a.defined()) matmul_tn_add(p.grad_a, take_rows(p.b, ids), dy, p.scale);
  if (p.reached != nullptr) *p.reached = true;
}

void embedding_backward(at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& ids, double scale,
                        std::int64_t padding) {
  check_ids(ids);
  check_tensor(dy.dim() == 2 && dy.size(0) == ids.size(0) && dy.size(1) == gradient.size(1), kOp,
               "a gradient of the rows [ids, columns of the table]", dy);
  if (padding >= 0)
    return embedding_backward(gradient, dy.masked_fill(ids.eq(padding).unsqueeze(1), 0), ids, scale);
  if (gradient.is_meta()) {
    // index_put_ has no Meta form in C++.
    if (reference_ops() || kernels_of(gradient) == at::kCUDA) at::empty(dy.sizes(), gradient.options());
    return;
  }
  if (!gradient.is_cpu() || reference_ops()) {
    at::Tensor rows = dy.to(gradient.scalar_type());
    if (scale != 1) rows = rows * scale;
    // Both add in an order that is always the same: on CUDA index_put_ sorts the ids.
    if (gradient.is_cpu()) {
      gradient.index_add_(0, ids, rows);
    } else {
      gradient.index_put_({ids}, rows, /*accumulate=*/true);
    }
    return;
  }
  const at::Tensor rows = dy.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, gradient.scalar_type(), "embedding_gradient", [&] {
        using Gradient = scalar_t;
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, rows.scalar_type(), "embedding_rows", [&] {
          add_rows<Gradient, scalar_t>(gradient, rows, ids.contiguous(), scale);
        });
      });
}

}  // namespace lorikeet::ops
