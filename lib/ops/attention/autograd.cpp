#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

#include "ops/attention/attention.h"
#include "ops/attention/cpu.h"
#include "ops/attention/cuda.h"
#include "ops/check.h"
#include "ops/node.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr const char* kOp = "attention";

// What both paths keep beside their results. qkv's gradient is packed as qkv is.
class AttentionBackward : public torch::autograd::Node {
 public:
  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor()};
    const at::NoGradGuard no_grad;
    return {gradient(grads[0].contiguous(), qkv.unpack(shared_from_this()), out.unpack(shared_from_this()))};
  }

  void release_variables() override {
    qkv.reset_data();
    out.reset_data();
  }

  SavedVariable qkv, out;
  HeadLayout layout{};
  Sequences sequences;
  AttentionOptions options;

 protected:
  virtual at::Tensor gradient(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out) = 0;
};

class CpuBackward : public AttentionBackward {
 public:
  std::string name() const override { return "AttentionCpuBackward"; }
  at::Tensor lse;  // [H, T] fp32

 protected:
  at::Tensor gradient(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out) override {
    auto dqkv = at::empty(qkv.sizes(), qkv.options().requires_grad(false));
    cpu::attention_backward(dout, qkv, out, lse, layout, sequences, options, dqkv);
    return dqkv;
  }
};

class FlashBackward : public AttentionBackward {
 public:
  std::string name() const override { return "AttentionFlashBackward"; }
  at::Tensor lse, rng_state, unused;

 protected:
  at::Tensor gradient(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out) override {
    const auto heads = out.view({out.size(0), layout.heads, layout.head_dim});
    return cuda::flash_backward(dout, qkv, {heads, lse, rng_state, unused}, layout, sequences, options);
  }
};

void check_options(const AttentionOptions& options) {
  check(options.window >= 0 && options.soft_cap >= 0, kOp, "window and soft_cap not below 0",
        [&] { return std::to_string(options.window) + " and " + std::to_string(options.soft_cap); });
}

void check_inputs(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                  const AttentionOptions& options) {
  check(layout.kv_heads > 0 && layout.heads % layout.kv_heads == 0 && layout.head_dim > 0, kOp,
        "query heads that are a multiple of the key heads",
        [&] { return std::to_string(layout.heads) + " and " + std::to_string(layout.kv_heads); });
  check_tensor(qkv.defined() && qkv.dim() == 2 && qkv.size(1) == layout.width() && qkv.is_floating_point() &&
                   qkv.is_contiguous(),
               kOp, "a dense floating matrix [tokens, (heads + 2 kv_heads) * head_dim]", qkv);
  const auto& ends = sequences.cu_seqlens;
  check(!ends.empty() && ends.front() == 0 && ends.back() == qkv.size(0) &&
            std::is_sorted(ends.begin(), ends.end()),
        kOp, "cu_seqlens ascending from 0 to the number of tokens",
        [&] { return std::to_string(ends.size()) + " entries for " + describe(qkv); });
  check_options(options);
}

template <typename Node>
std::shared_ptr<Node> start_node(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                                 const AttentionOptions& options) {
  auto node = make_node<Node>(qkv);
  node->qkv = SavedVariable(qkv, /*is_output=*/false);
  node->layout = layout;
  node->sequences = sequences;
  node->options = options;
  return node;
}

void finish_node(const std::shared_ptr<AttentionBackward>& node, at::Tensor& out) {
  torch::autograd::set_history(out, node);
  node->out = SavedVariable(out, /*is_output=*/true);
}

at::Tensor on_cpu(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                  const AttentionOptions& options) {
  const bool graph = needs_graph(qkv);
  const auto plain = qkv.options().requires_grad(false);
  auto out = at::empty({qkv.size(0), layout.heads * layout.head_dim}, plain);
  at::Tensor lse;
  if (graph) lse = at::empty({layout.heads, qkv.size(0)}, plain.dtype(at::kFloat));
  cpu::attention_forward(qkv, layout, sequences, options, out, lse);
  if (graph) {
    auto node = start_node<CpuBackward>(qkv, layout, sequences, options);
    node->lse = std::move(lse);
    finish_node(node, out);
  }
  return out;
}

at::Tensor by_flash(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                    const AttentionOptions& options) {
  cuda::FlashResult result;
  at::Tensor out;
  {
    const at::NoGradGuard no_grad;
    result = cuda::flash_forward(qkv.detach(), layout, sequences, options);
    out = result.out.reshape({qkv.size(0), layout.heads * layout.head_dim}).detach();
  }
  if (needs_graph(qkv)) {
    auto node = start_node<FlashBackward>(qkv, layout, sequences, options);
    node->lse = result.lse;
    node->rng_state = result.rng_state;
    node->unused = result.unused;
    finish_node(node, out);
  }
  return out;
}

// Scores of one call of the reference, over all heads: bounds what a long prompt takes.
constexpr std::int64_t kBlockScores = std::int64_t{1} << 24;

// The reference over blocks of queries, each with the keys that it may see.
void cached_by_blocks(const at::Tensor& q, const std::vector<at::Tensor>& k, const std::vector<at::Tensor>& v,
                      const std::vector<std::int32_t>& cu_q, const AttentionOptions& options,
                      at::Tensor& out) {
  for (std::size_t s = 0; s < k.size(); ++s) {
    const auto rows = std::max<std::int64_t>(kBlockScores / (q.size(1) * k[s].size(0)), 1);
    for (std::int64_t begin = cu_q[s]; begin < cu_q[s + 1]; begin += rows) {
      const auto end = std::min<std::int64_t>(begin + rows, cu_q[s + 1]);
      const auto keys = options.causal ? k[s].size(0) - (cu_q[s + 1] - end) : k[s].size(0);
      out.slice(0, begin, end)
          .copy_(reference::attention_cached(q.slice(0, begin, end), {k[s].slice(0, 0, keys)},
                                             {v[s].slice(0, 0, keys)},
                                             {0, static_cast<std::int32_t>(end - begin)}, options));
    }
  }
}

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                     const AttentionOptions& options) {
  check_inputs(qkv, layout, sequences, options);
  if (vector::is_fast(qkv)) return on_cpu(qkv, layout, sequences, options);
  if (cuda::flash_takes(qkv, layout, options)) return by_flash(qkv, layout, sequences, options);
  return reference::attention(qkv, layout, sequences, options);
}

at::Tensor attention_cached(const at::Tensor& q, const std::vector<at::Tensor>& k,
                            const std::vector<at::Tensor>& v, const std::vector<std::int32_t>& cu_q,
                            const AttentionOptions& options) {
  constexpr const char* kCached = "attention_cached";
  check_options(options);
  check_tensor(q.defined() && q.dim() == 3 && q.is_floating_point(), kCached,
               "queries [tokens, heads, head_dim]", q);
  check(k.size() == v.size() && cu_q.size() == k.size() + 1 && cu_q.front() == 0 &&
            cu_q.back() == q.size(0) && std::is_sorted(cu_q.begin(), cu_q.end()),
        kCached, "keys, values and a range of queries for each sequence",
        [&] { return std::to_string(k.size()) + " keys, " + std::to_string(v.size()) + " values"; });
  bool fast = vector::has_fast_elements(q) && q.stride(2) == 1;
  for (std::size_t s = 0; s < k.size(); ++s) {
    check(k[s].dim() == 3 && k[s].sizes() == v[s].sizes() && k[s].size(2) == q.size(2) &&
              k[s].size(1) == k[0].size(1) && k[s].size(1) > 0 && q.size(1) % k[s].size(1) == 0 &&
              k[s].size(0) >= cu_q[s + 1] - cu_q[s] && k[s].scalar_type() == q.scalar_type(),
          kCached, "keys and values [at least the queries, kv_heads, head_dim] of the queries' dtype",
          [&] { return describe(k[s]) + " and " + describe(v[s]); });
    fast = fast && k[s].is_cpu() && v[s].is_cpu() && v[s].scalar_type() == q.scalar_type() &&
           k[s].stride(2) == 1 && v[s].stride(2) == 1;
  }
  const at::NoGradGuard no_grad;
  auto out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options().requires_grad(false));
  if (fast) {
    cpu::attention_cached(q, k, v, cu_q, options, out);
  } else {
    cached_by_blocks(q, k, v, cu_q, options, out);
  }
  return out;
}

}  // namespace lorikeet::ops
