#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

#include "ops/check.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/linear_cross_entropy/softmax.h"
#include "ops/matmul/matmul.h"
#include "ops/node.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

using torch::autograd::variable_list;

constexpr const char* kOp = "linear_cross_entropy";

// Logits of one chunk: enough rows to use a matrix product well, at most 64 MiB of fp32 beyond that.
constexpr std::int64_t kLeastRowsCpu = 256, kRowsCuda = 2048;
constexpr std::int64_t kChunkElementsCpu = std::int64_t{1} << 24;

// What forward leaves behind for backward. Undefined where nobody needs it.
struct Gradients {
  at::Tensor hidden;  // [T, D]
  at::Tensor a, b;    // the head adapter's, fp32
};

struct Inputs {
  const at::Tensor& hidden;
  const at::Tensor& head;  // borrowed
  const std::vector<LoraProjection>& lora;
  const at::Tensor& rows;
  const at::Tensor& labels;
  const CrossEntropyOptions& options;
};

void check_inputs(const Inputs& in) {
  check_tensor(in.hidden.defined() && in.hidden.dim() == 2 && in.hidden.size(1) == in.head.size(1), kOp,
               "hidden states [tokens, hidden] as wide as the head", in.hidden);
  check(in.head.scalar_type() == in.hidden.scalar_type() && in.head.device() == in.hidden.device(), kOp,
        "a head of the hidden states' dtype on their device",
        [&] { return describe(in.head) + " for " + describe(in.hidden); });
  for (const auto* index : {&in.rows, &in.labels}) {
    check_tensor(index->defined() && index->dim() == 1 && index->scalar_type() == at::kLong &&
                     index->size(0) == in.rows.size(0) && index->device() == in.hidden.device(),
                 kOp, "int64 label rows and as many labels, on the hidden states' device", *index);
  }
  check(in.lora.size() <= 1 &&
            (in.lora.empty() || (in.lora[0].out_begin == 0 && in.lora[0].out_end == in.head.size(0))),
        kOp, "at most one adapter, of all the head's rows",
        [&] { return std::to_string(in.lora.size()) + " adapters or other columns"; });
  check_projections(kOp, in.lora, in.head.size(1), in.head.size(0), in.hidden.scalar_type());
  check(
      in.options.soft_cap >= 0 && in.options.chunk_rows >= 0, kOp, "soft_cap and chunk_rows not below 0",
      [&] { return std::to_string(in.options.soft_cap) + " and " + std::to_string(in.options.chunk_rows); });
  if (in.labels.is_cpu() &&
      in.labels.numel() > 0) {  // on a GPU the kernel asserts: nothing is asked of the device
    const auto least = in.labels.min().item<std::int64_t>(), most = in.labels.max().item<std::int64_t>();
    check(least >= 0 && most < in.head.size(0), kOp, "labels in [0, rows of the head)",
          [&] { return std::to_string(least) + " to " + std::to_string(most); });
  }
}

// One pass over the chunks: writes nll [L] and, with `gradients`, what is defined in it (zeroed by the
// caller).
void run_chunks(const Inputs& in, double grad_scale, at::Tensor& nll, Gradients* gradients) {
  const auto count = in.rows.size(0);
  const auto step = in.options.chunk_rows > 0 ? in.options.chunk_rows
                                              : default_chunk_rows(in.head.size(0), in.hidden.device());
  const auto hidden = in.hidden.detach();
  for (std::int64_t begin = 0; begin < count; begin += step) {
    const auto end = std::min(begin + step, count);
    const auto rows = in.rows.slice(0, begin, end);
    const auto x = matmul_operand(hidden.index_select(0, rows));
    std::vector<LowRankTerm> terms;
    at::Tensor xa;
    if (!in.lora.empty()) {
      xa = matmul_nt(x, in.lora[0].a.detach());
      terms.push_back({xa * in.lora[0].scale, in.lora[0].b.detach(), 0});
    }
    auto logits = at::empty({end - begin, in.head.size(0)}, x.options());
    matmul_nt_out(logits, x, in.head, terms);
    softmax_nll(logits, in.labels.slice(0, begin, end), in.options, gradients != nullptr, grad_scale,
                nll.slice(0, begin, end));
    if (gradients == nullptr) continue;
    std::vector<LowRankTerm> back;
    if (!in.lora.empty()) {
      const auto& p = in.lora[0];
      const auto low = matmul_nn(logits, p.b.detach()).mul_(p.scale);
      if (gradients->b.defined()) matmul_tn_add(gradients->b, logits, xa, p.scale);
      if (gradients->a.defined()) matmul_tn_add(gradients->a, low, x, 1);
      back.push_back({low, p.a.detach(), 0});
    }
    if (gradients->hidden.defined()) {
      auto dx = at::empty({end - begin, hidden.size(1)}, hidden.options());
      matmul_nn_out(dx, logits, in.head, back);
      gradients->hidden.index_copy_(0, rows, dx);
    }
  }
}

class CrossEntropyBackward : public torch::autograd::Node {
 public:
  std::string name() const override { return "LinearCrossEntropyBackward"; }

  variable_list apply(variable_list&& grads) override {
    variable_list result(num_outputs());
    if (!grads[0].defined()) return result;
    const at::NoGradGuard no_grad;
    // On a CPU the usual incoming 1 spares a pass over the gradient; a GPU is asked for nothing.
    const bool one = grads[0].is_cpu() && grads[0].item<double>() == 1;
    const auto scaled = [&](const at::Tensor& grad) {
      return one ? grad : grad * grads[0].to(grad.scalar_type());
    };
    if (gradients.a.defined()) grad_a.add_(scaled(gradients.a));
    if (gradients.b.defined()) grad_b.add_(scaled(gradients.b));
    if (reached != nullptr) *reached = true;
    if (task_should_compute_output(0)) result[0] = scaled(gradients.hidden);
    return result;
  }

  void release_variables() override { gradients = {}; }

  Gradients gradients;
  at::Tensor grad_a, grad_b;
  bool* reached = nullptr;  // LoraProjection's
};

}  // namespace

std::int64_t default_chunk_rows(std::int64_t vocabulary, at::Device device) {
  if (!device.is_cpu()) return kRowsCuda;
  return std::max(kLeastRowsCpu, kChunkElementsCpu / std::max<std::int64_t>(vocabulary, 1) / 64 * 64);
}

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const std::shared_ptr<const FrozenWeight>& head,
                                const std::vector<LoraProjection>& head_lora, const at::Tensor& label_rows,
                                const at::Tensor& labels, double loss_scale,
                                const CrossEntropyOptions& options, const at::Tensor& anchor) {
  const bool graph = needs_graph(hidden, anchor);
  at::Tensor loss;
  Gradients gradients;
  {
    const at::NoGradGuard no_grad;
    const auto lease = head->lease();
    const Inputs in{hidden, lease.tensor(), head_lora, label_rows, labels, options};
    check_inputs(in);
    const auto wide = hidden.options().dtype(wide_type(hidden));
    auto nll = at::empty({label_rows.size(0)}, wide);
    if (graph) {
      if (hidden.requires_grad()) gradients.hidden = at::zeros_like(hidden);
      if (!head_lora.empty()) {
        if (head_lora[0].grad_a.defined()) gradients.a = at::zeros_like(head_lora[0].grad_a);
        if (head_lora[0].grad_b.defined()) gradients.b = at::zeros_like(head_lora[0].grad_b);
      }
    }
    run_chunks(in, loss_scale, nll, graph ? &gradients : nullptr);
    loss = nll.sum();
  }
  if (graph) {
    auto node = make_node<CrossEntropyBackward>(hidden, anchor);
    node->gradients = std::move(gradients);
    if (!head_lora.empty()) {
      node->grad_a = head_lora[0].grad_a;
      node->grad_b = head_lora[0].grad_b;
      node->reached = head_lora[0].reached;
    }
    torch::autograd::set_history(loss, node);
  }
  return loss;
}

at::Tensor token_nll(const at::Tensor& hidden, const FrozenWeight& head,
                     const std::vector<LoraProjection>& head_lora, const at::Tensor& label_rows,
                     const at::Tensor& labels, const CrossEntropyOptions& options) {
  const at::NoGradGuard no_grad;
  const auto lease = head.lease();
  const Inputs in{hidden, lease.tensor(), head_lora, label_rows, labels, options};
  check_inputs(in);
  auto nll = at::empty({label_rows.size(0)}, hidden.options().dtype(wide_type(hidden)).requires_grad(false));
  run_chunks(in, 1, nll, nullptr);
  return nll;
}

}  // namespace lorikeet::ops
