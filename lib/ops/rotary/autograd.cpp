#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

#include "ops/check.h"
#include "ops/node.h"
#include "ops/rotary/cpu.h"
#include "ops/rotary/rotary.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

using torch::autograd::variable_list;

constexpr const char* kOp = "rotary";

// Whether nobody but the holder of `tensor` can see its elements.
bool has_sole_owner(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.is_contiguous();
}

// The transpose of a rotation is the rotation back: only the angles are kept.
class RotaryBackward : public torch::autograd::Node {
 public:
  std::string name() const override { return "RotaryBackward"; }

  variable_list apply(variable_list&& grads) override {
    auto grad = std::move(grads[0]);
    if (!grad.defined()) return {grad};
    const at::NoGradGuard no_grad;
    if (!has_sole_owner(grad)) grad = grad.clone(at::MemoryFormat::Contiguous);
    cpu::rotate(grad, cos, sin, layout, /*inverse=*/true);
    return {grad};
  }

  at::Tensor cos, sin;  // never part of a graph
  HeadLayout layout{};
};

void check_inputs(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                  const HeadLayout& layout) {
  check_tensor(qkv.defined() && qkv.dim() == 2 && qkv.size(1) == layout.width() && qkv.is_floating_point(),
               kOp, "a floating matrix [tokens, (heads + 2 kv_heads) * head_dim]", qkv);
  check(cos.defined() && sin.defined() && cos.dim() == 2 && cos.sizes() == sin.sizes() &&
            cos.size(0) == qkv.size(0) && 2 * cos.size(1) <= layout.head_dim,
        kOp, "cos and sin [tokens, at most half of head_dim]",
        [&] { return describe(cos) + " and " + describe(sin); });
}

}  // namespace

at::Tensor rotary(at::Tensor qkv, const at::Tensor& cos, const at::Tensor& sin, const HeadLayout& layout) {
  check_inputs(qkv, cos, sin, layout);
  if (!vector::is_fast(qkv)) return reference::rotary(qkv, cos, sin, layout);
  const at::Tensor c = cos.detach().to(at::kFloat).contiguous(), s = sin.detach().to(at::kFloat).contiguous();
  std::shared_ptr<RotaryBackward> node;
  if (needs_graph(qkv)) {
    node = make_node<RotaryBackward>(qkv);
    node->cos = c;
    node->sin = s;
    node->layout = layout;
  }
  // A saved alias of the elements would own their storage too, so a sole owner may overwrite them.
  const bool in_place = has_sole_owner(qkv) && !(qkv.is_leaf() && qkv.requires_grad());
  auto out = in_place ? qkv.detach() : qkv.detach().clone();
  qkv.reset();
  cpu::rotate(out, c, s, layout, /*inverse=*/false);
  if (node) torch::autograd::set_history(out, node);
  return out;
}

}  // namespace lorikeet::ops
