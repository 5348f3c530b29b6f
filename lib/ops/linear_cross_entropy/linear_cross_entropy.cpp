#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "ops/check.h"
#include "ops/dry_run.h"
#include "ops/linear_cross_entropy/softmax.h"
#include "ops/matmul/matmul.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "linear_cross_entropy";

// Logits of one chunk: on a CPU enough rows to use a matrix product well, beyond that at most 64 MiB of fp32.
constexpr std::int64_t kLeastRowsCpu = 256, kChunkElementsCpu = std::int64_t{1} << 24;
// On a GPU at most 512 MiB of 16 bits, beyond the least rows.
constexpr std::int64_t kLeastRowsCuda = 768, kMostRowsCuda = 2048;
constexpr std::int64_t kChunkElementsCuda = std::int64_t{1} << 28;

// On a GPU the product for the hidden states' gradient, [rows, width], is the one with few tiles: of the
// numbers of rows that are whole tiles, the one with which these fill the multiprocessors of a large GPU most
// evenly, and the least of such (benchmarks/results/card.md).
std::int64_t rows_on_gpu(std::int64_t vocabulary, std::int64_t width) {
  constexpr std::int64_t kTileRows = 256, kTileColumns = 128, kMultiprocessors = 132;
  const std::int64_t most = std::clamp(kChunkElementsCuda / vocabulary, kLeastRowsCuda, kMostRowsCuda);
  const std::int64_t across = (width + kTileColumns - 1) / kTileColumns;
  std::int64_t best = kLeastRowsCuda;
  double best_share = 0;
  for (std::int64_t rows = kLeastRowsCuda; rows <= most; rows += kTileRows) {
    const std::int64_t tiles = rows / kTileRows * across;
    const std::int64_t turns = (tiles + kMultiprocessors - 1) / kMultiprocessors;
    const double share = static_cast<double>(tiles) / static_cast<double>(turns * kMultiprocessors);
    if (share <= best_share) continue;
    best = rows;
    best_share = share;
  }
  return best;
}

// What chunk_rows = 0 stands for.
std::int64_t default_chunk_rows(const at::Tensor& head, at::DeviceType device) {
  const std::int64_t vocabulary = std::max<std::int64_t>(head.size(0), 1);
  if (device == at::kCPU) return std::max(kLeastRowsCpu, kChunkElementsCpu / vocabulary / 64 * 64);
  return rows_on_gpu(vocabulary, head.size(1));
}

struct Inputs {
  const at::Tensor& hidden;
  const at::Tensor& head;
  const std::vector<LoraProjection>& lora;
  const at::Tensor& labels;
  const CrossEntropyOptions& options;
};

void check_inputs(const Inputs& in) {
  check_tensor(in.hidden.defined() && in.hidden.dim() == 2 && in.hidden.size(1) == in.head.size(1), kOp,
               "hidden states [labels, hidden] as wide as the head", in.hidden);
  check(in.head.scalar_type() == in.hidden.scalar_type() && in.head.device() == in.hidden.device(), kOp,
        "a head of the hidden states' dtype on their device",
        [&] { return describe(in.head) + " for " + describe(in.hidden); });
  check_tensor(in.labels.defined() && in.labels.dim() == 1 && in.labels.scalar_type() == at::kLong &&
                   in.labels.size(0) == in.hidden.size(0) && in.labels.device() == in.hidden.device(),
               kOp, "as many int64 labels as hidden states, on their device", in.labels);
  check(in.lora.size() <= 1 &&
            (in.lora.empty() || (in.lora[0].out_begin == 0 && in.lora[0].out_end == in.head.size(0))),
        kOp, "at most one adapter, of all the head's rows",
        [&] { return std::to_string(in.lora.size()) + " adapters or other columns"; });
  check_projections(kOp, in.lora, in.head.size(1), in.head.size(0), in.hidden.scalar_type());
  check(
      in.options.soft_cap >= 0 && in.options.chunk_rows >= 0, kOp, "soft_cap and chunk_rows not below 0",
      [&] { return std::to_string(in.options.soft_cap) + " and " + std::to_string(in.options.chunk_rows); });
  // Nothing is asked of a GPU: there the kernel makes NaN of them.
  if (in.labels.is_cpu() && in.labels.numel() > 0) {
    const auto least = in.labels.min().item<std::int64_t>(), most = in.labels.max().item<std::int64_t>();
    check(least >= 0 && most < in.head.size(0), kOp, "labels in [0, rows of the head)",
          [&] { return std::to_string(least) + " to " + std::to_string(most); });
  }
}

// The dropout of rows [begin, end).
std::optional<LoraDropout> dropout_of(const Inputs& in, std::int64_t begin, std::int64_t end) {
  if (!in.options.dropout || in.lora.empty()) return std::nullopt;
  LoraDropout dropout = *in.options.dropout;
  dropout.sample_ids = dropout.sample_ids.slice(0, begin, end);
  dropout.position_ids = dropout.position_ids.slice(0, begin, end);
  return dropout;
}

// One pass over the chunks: writes nll [L]. With `gradients` adds the adapter's and, where it is defined, the
// head's, and writes the hidden states' [L, D] where that is defined.
void run_chunks(const Inputs& in, double grad_scale, at::Tensor& nll, bool gradients,
                const at::Tensor& hidden_gradient = {}, at::Tensor head_gradient = {}) {
  const auto count = in.hidden.size(0);
  const auto factors = in.options.dora ? in.options.dora->factors() : at::Tensor();
  const auto step =
      in.options.chunk_rows > 0 ? in.options.chunk_rows : default_chunk_rows(in.head, kernels_of(in.hidden));
  for (std::int64_t begin = 0; begin < count; begin += step) {
    const auto end = std::min(begin + step, count);
    const auto chunk = in.hidden.slice(0, begin, end);
    const auto x = matmul_operand(chunk);
    const auto dropout = dropout_of(in, begin, end);
    const auto adapted = dropout ? matmul_operand(apply_dropout(chunk, *dropout)) : x;
    std::vector<LowRankTerm> terms;
    at::Tensor xa;
    if (!in.lora.empty()) {
      xa = at::empty({end - begin, in.lora[0].a.size(0)}, x.options().dtype(product_type(x)));
      matmul_nt_out(xa, adapted, in.lora[0].a);
      terms.push_back({xa, in.lora[0].b, 0, in.lora[0].scale});
    }
    auto logits = at::empty({end - begin, in.head.size(0)}, x.options().dtype(product_type(x)));
    matmul_nt_out(logits, x, in.head, terms);
    at::Tensor product;  // what DoRA's factors multiply
    if (factors.defined()) {
      product = std::move(logits);
      logits = scale_columns(product, factors, {});
    }
    softmax_nll(logits, in.labels.slice(0, begin, end), in.options, gradients, grad_scale,
                nll.slice(0, begin, end));
    if (!gradients) continue;
    if (factors.defined()) {
      auto back = scale_columns_backward(logits, product, factors);
      in.options.dora->add_gradient(back.factors);
      logits = std::move(back.dx);
      product.reset();
    }
    std::vector<LowRankTerm> back;
    at::Tensor dropped;  // what flows back through the mask
    if (!in.lora.empty()) {
      LoraProjection p = in.lora[0];
      const auto low = matmul_nn(logits, p.b).mul_(p.scale);
      if (p.grad_b.defined()) matmul_tn_add(p.grad_b, logits, xa.slice(1, 0, p.grad_b.size(1)), p.scale);
      if (p.grad_a.defined()) matmul_tn_add(p.grad_a, low.slice(1, 0, p.grad_a.size(0)), adapted, 1);
      if (dropout) {
        dropped = apply_dropout(matmul_nn(low, p.a), *dropout);
      } else {
        back.push_back({low, p.a, 0});
      }
    }
    if (head_gradient.defined()) matmul_tn_add(head_gradient, logits, x, 1);
    if (hidden_gradient.defined()) {
      auto dx = hidden_gradient.slice(0, begin, end);
      matmul_nn_out(dx, logits, in.head, back);
      if (dropped.defined()) dx.add_(dropped);
    }
  }
}

}  // namespace

CrossEntropy linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& head,
                                  const std::vector<LoraProjection>& head_lora, const at::Tensor& labels,
                                  double loss_scale, const CrossEntropyOptions& options, bool hidden_gradient,
                                  const at::Tensor& head_gradient) {
  const Inputs in{hidden, head, head_lora, labels, options};
  check_inputs(in);
  if (head_gradient.defined()) {
    check_tensor(head_gradient.sizes() == head.sizes() && head_gradient.is_floating_point(), kOp,
                 "a floating gradient of the head's shape", head_gradient);
  }
  CrossEntropy result;
  if (hidden_gradient) result.hidden = at::empty_like(hidden);
  auto nll = at::empty({hidden.size(0)}, hidden.options().dtype(wide_type(hidden)));
  run_chunks(in, loss_scale, nll, /*gradients=*/true, result.hidden, head_gradient);
  for (const auto& p : head_lora) {
    if (p.reached != nullptr) *p.reached = true;
  }
  result.loss = nll.sum();
  return result;
}

at::Tensor token_nll(const at::Tensor& hidden, const at::Tensor& head,
                     const std::vector<LoraProjection>& head_lora, const at::Tensor& labels,
                     const CrossEntropyOptions& options) {
  const Inputs in{hidden, head, head_lora, labels, options};
  check_inputs(in);
  auto nll = at::empty({hidden.size(0)}, hidden.options().dtype(wide_type(hidden)));
  run_chunks(in, 1, nll, /*gradients=*/false);
  return nll;
}

}  // namespace lorikeet::ops
