#include "ops/activation/activation.h"

#include <ATen/ATen.h>

#include <string>

#include "ops/activation/activation_cuda.h"
#include "ops/activation/cpu.h"
#include "ops/activation/gated_terms.h"
#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/low_rank_term.h"
#include "ops/reference_backward.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

// `parts`: 2 where rows are [gate | up], else 1.
void check_input(const char* op, const at::Tensor& x, int parts) {
  check_tensor(x.defined() && x.dim() == 2 && x.size(1) % parts == 0 && x.is_floating_point(), op,
               parts == 2 ? "a floating matrix [tokens, gate | up]" : "a floating matrix [tokens, width]", x);
}

void check_gradient(const char* op, const at::Tensor& dy, const at::Tensor& x, int parts) {
  check_input(op, x, parts);
  check(dy.defined() && dy.dim() == 2 && dy.size(0) == x.size(0) && dy.size(1) * parts == x.size(1) &&
            dy.scalar_type() == x.scalar_type(),
        op, "a gradient of the result's shape and dtype",
        [&] { return describe(dy) + " for " + describe(x); });
}

void check_plain(Activation activation) {
  check(activation != Activation::kClampedSwiglu, "activation", "an activation of one number",
        [] { return "the clamped SwiGLU, which takes a gate and an up"; });
}

bool is_fast_on_cuda(const at::Tensor& x) { return has_cuda_elements(x) && x.is_contiguous(); }

// Where a kernel writes forward's result once more; nullptr where nobody wants it.
void* again_pointer(const at::Tensor* again) {
  return again != nullptr ? again->mutable_data_ptr() : nullptr;
}

// `terms` as `find` gives them to the kernels; nothing where there are none. Throws Error on those that they
// don't take.
template <typename Find>
auto taken(const Find& find, const at::Tensor& product, const std::vector<LowRankTerm>& terms) {
  auto found = find(product, terms);
  check(found.has_value() || terms.empty(), "gated_activation", "low-rank terms that its kernels add",
        [&] { return std::to_string(terms.size()) + " others for " + describe(product); });
  return found;
}

// Whether the kernels that add `term` to dy sum up the gradient of its right operand there.
bool takes_right_gradient(const at::Tensor& gradient, const LowRankTerm& term) {
  return gradient.defined() && gradient.sizes() == term.right.sizes() &&
         gradient.scalar_type() == at::kFloat && gradient.is_contiguous() && is_aligned(gradient);
}

}  // namespace

bool gated_activation_adds(const at::Tensor& gate_up, const std::vector<LowRankTerm>& terms) {
  return gated_terms(gate_up, terms).has_value();
}

bool gated_activation_backward_adds(const at::Tensor& dy, const std::vector<LowRankTerm>& terms) {
  return gradient_term(dy, terms).has_value();
}

bool gated_activation_backward_sums(const at::Tensor& dy, const std::vector<LowRankTerm>& dy_terms,
                                    const at::Tensor& right_gradient) {
  return gated_activation_backward_adds(dy, dy_terms) &&
         takes_right_gradient(right_gradient, dy_terms.front());
}

at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation,
                            const std::vector<LowRankTerm>& terms) {
  check_input("gated_activation", gate_up, 2);
  const auto added = taken(gated_terms, gate_up, terms);
  const bool on_cuda = is_fast_on_cuda(gate_up);
  if (!on_cuda && !vector::is_fast(gate_up)) return reference::gated_activation(gate_up, activation);
  auto out = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
  if (on_cuda) {
    launch_on_device_of(gate_up, [&](void* stream) {
      const CudaElement element = cuda_element(gate_up);
      const void* const in = gate_up.const_data_ptr();
      void* const to = out.mutable_data_ptr();
      if (added) {
        launch_gated_forward(element, activation, in, *added, out.size(0), out.size(1), to, stream);
      } else {
        launch_gated_forward(element, activation, in, out.size(0), out.size(1), to, stream);
      }
    });
  } else {
    cpu::gated_forward(gate_up, activation, out);
  }
  return out;
}

void gated_activation_backward_(const at::Tensor& dy, at::Tensor& gate_up, Activation activation,
                                at::Tensor* again, const std::vector<LowRankTerm>& terms,
                                const std::vector<LowRankTerm>& dy_terms, const at::Tensor& right_gradient) {
  check_gradient("gated_activation", dy, gate_up, 2);
  const auto added = taken(gated_terms, gate_up, terms);
  const auto dy_added = taken(gradient_term, dy, dy_terms);
  const bool with_terms = added || dy_added;
  check(!with_terms || takes_terms(gate_up, dy.size(1)), "gated_activation",
        "a gate_up whose gradient the kernels with low-rank terms write", [&] { return describe(gate_up); });
  const bool sums = right_gradient.defined();
  check(!sums || (again == nullptr && dy_added && takes_right_gradient(right_gradient, dy_terms.front())),
        "gated_activation", "a gradient of the right operand of dy's term that its kernels sum, alone",
        [&] { return describe(right_gradient) + " for " + describe(dy); });
  const bool on_cpu = vector::is_fast(gate_up), on_cuda = is_fast_on_cuda(gate_up);
  if (again != nullptr && (on_cpu || on_cuda)) *again = at::empty(dy.sizes(), dy.options());
  if (on_cpu) {
    cpu::gated_backward(dy.contiguous(), activation, gate_up, again);
  } else if (on_cuda) {
    const at::Tensor dense = dy.contiguous();
    at::Tensor partial;
    if (sums)
      partial = at::empty({gated_partial_sums(dense.size(0), dense.size(1)), right_gradient.numel()},
                          right_gradient.options());
    launch_on_device_of(gate_up, [&](void* stream) {
      const CudaElement element = cuda_element(gate_up);
      const void* const in = dense.const_data_ptr();
      void* const to = gate_up.mutable_data_ptr();
      if (sums) {
        launch_gated_backward_and_sum(element, activation, in, *dy_added, added.value_or(GatedTerms{}),
                                      dense.size(0), dense.size(1), to, partial.mutable_data_ptr<float>(),
                                      right_gradient.mutable_data_ptr<float>(), stream);
      } else if (with_terms) {
        launch_gated_backward(element, activation, in, dy_added.value_or(LowRankOnDevice{}),
                              added.value_or(GatedTerms{}), dense.size(0), dense.size(1), to,
                              again_pointer(again), stream);
      } else {
        launch_gated_backward(element, activation, in, dense.size(0), dense.size(1), to, again_pointer(again),
                              stream);
      }
    });
  } else {
    if (again != nullptr) *again = gated_activation(gate_up, activation);
    gate_up.copy_(reference_backward(
        [&](const at::Tensor& x) { return reference::gated_activation(x, activation); }, gate_up, dy));
  }
}

at::Tensor activation(const at::Tensor& x, Activation activation) {
  check_input("activation", x, 1);
  check_plain(activation);
  const bool on_cuda = is_fast_on_cuda(x);
  if (!on_cuda && !vector::is_fast(x)) return reference::activation(x, activation);
  auto out = at::empty(x.sizes(), x.options());
  if (on_cuda) {
    launch_on_device_of(x, [&](void* stream) {
      launch_activation_forward(cuda_element(x), activation, x.const_data_ptr(), x.numel(),
                                out.mutable_data_ptr(), stream);
    });
  } else {
    cpu::plain_forward(x, activation, out);
  }
  return out;
}

void activation_backward_(const at::Tensor& dy, at::Tensor& x, Activation activation, at::Tensor* again) {
  check_gradient("activation", dy, x, 1);
  check_plain(activation);
  const bool on_cpu = vector::is_fast(x), on_cuda = is_fast_on_cuda(x);
  if (again != nullptr && (on_cpu || on_cuda)) *again = at::empty(dy.sizes(), dy.options());
  if (on_cpu) {
    cpu::plain_backward(dy.contiguous(), activation, x, again);
  } else if (on_cuda) {
    const at::Tensor dense = dy.contiguous();
    launch_on_device_of(x, [&](void* stream) {
      launch_activation_backward(cuda_element(x), activation, dense.const_data_ptr(), x.numel(),
                                 x.mutable_data_ptr(), again_pointer(again), stream);
    });
  } else {
    if (again != nullptr) *again = ops::activation(x, activation);
    x.copy_(reference_backward(
        [&](const at::Tensor& input) { return reference::activation(input, activation); }, x, dy));
  }
}

}  // namespace lorikeet::ops
