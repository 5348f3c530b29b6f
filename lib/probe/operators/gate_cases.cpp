#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/experts/routing.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/norm_of_gated/norm_of_gated.h"
#include "ops/row_gate/row_gate.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {
namespace {

constexpr std::int64_t kBeside = 8;  // columns on either side of rows that lie in wider ones

at::Tensor inner(const at::Tensor& wider) { return wider.narrow(1, kBeside, wider.size(1) - 2 * kBeside); }

struct Heads {
  std::int64_t tokens, heads, head_dim;
  bool wide_weight;
};

Results gated_norm(const Place& place, const Heads& form) {
  constexpr double kEps = 1e-6;
  const std::int64_t width = form.heads * form.head_dim;
  const at::Tensor x = place.normal({form.tokens, width}, 1);
  const at::Tensor z = inner(place.normal({form.tokens, width + 2 * kBeside}, 2, /*scale=*/3));
  const at::Tensor weight =
      form.wide_weight ? place.wide_normal({form.head_dim}, 3) : place.normal({form.head_dim}, 3);
  const at::Tensor gradient = place.normal({form.tokens, width}, 4);
  const at::Tensor of_gate = place.normal({form.tokens, width + 2 * kBeside}, 5);
  at::Tensor again;
  ops::gated_norm_backward_(gradient, x, z, weight, kEps, inner(of_gate), &again);
  return {{"output", ops::gated_norm(x, z, weight, kEps)},
          {"output, again", again},
          {"gradient of x", gradient},
          {"gradient of the gate and what lies beside it", of_gate}};
}

void add_gated_norm(std::vector<OperatorCase>& cases) {
  // Heads of whole 16-byte accesses, up to 32 of them, and others.
  constexpr Heads kForms[] = {{33, 4, 128, false}, {5, 3, 96, true},   {7, 2, 64, false}, {3, 2, 256, true},
                              {9, 2, 21, false},   {1, 32, 128, true}, {0, 2, 64, false}};
  for (const Heads& form : kForms) {
    cases.push_back({"gated norm",
                     std::to_string(form.tokens) + " x " + std::to_string(form.heads) + " heads of " +
                         std::to_string(form.head_dim) + (form.wide_weight ? ", weight in fp32" : ""),
                     [form](const Place& at) { return gated_norm(at, form); }});
  }
}

struct Groups {
  std::int64_t tokens, groups, group;
  bool wide_weight;
};

Results norm_of_gated(const Place& place, const Groups& form) {
  constexpr double kEps = 1e-5;
  const std::int64_t width = form.groups * form.group;
  const at::Tensor x = place.normal({form.tokens, width}, 1);
  const at::Tensor z = inner(place.normal({form.tokens, width + 2 * kBeside}, 2, /*scale=*/3));
  const at::Tensor weight = form.wide_weight ? place.wide_normal({width}, 3) : place.normal({width}, 3);
  const at::Tensor gradient = place.normal({form.tokens, width}, 4);
  const at::Tensor of_gate = place.normal({form.tokens, width + 2 * kBeside}, 5);
  at::Tensor again;
  ops::norm_of_gated_backward_(gradient, x, z, weight, form.groups, kEps, inner(of_gate), &again);
  return {{"output", ops::norm_of_gated(x, z, weight, form.groups, kEps)},
          {"output, again", again},
          {"gradient of x", gradient},
          {"gradient of the gate and what lies beside it", of_gate}};
}

void add_norm_of_gated(std::vector<OperatorCase>& cases) {
  // Groups of a warp, of several, of a whole block, wider than a block keeps, and such as no kernel takes.
  constexpr Groups kForms[] = {{33, 8, 512, false}, {9, 1, 4096, true},  {17, 3, 264, true},
                               {3, 1, 8192, false}, {2, 1, 16400, true}, {7, 2, 21, false},
                               {1, 5, 8, true},     {0, 2, 64, false}};
  for (const Groups& form : kForms) {
    cases.push_back({"norm of a gated product",
                     std::to_string(form.tokens) + " x " + std::to_string(form.groups) + " groups of " +
                         std::to_string(form.group) + (form.wide_weight ? ", weight in fp32" : ""),
                     [form](const Place& at) { return norm_of_gated(at, form); }});
  }
}

Results sigmoid_gate(const Place& place, std::int64_t tokens, std::int64_t width) {
  const at::Tensor x = place.normal({tokens, width}, 1);
  const at::Tensor gates = place.normal({tokens, width + 2 * kBeside}, 2, /*scale=*/3);
  const at::Tensor gradient = place.normal({tokens, width}, 3);
  const at::Tensor of_gate = place.normal({tokens, width + 2 * kBeside}, 4);
  at::Tensor again;
  ops::sigmoid_gate_backward_(gradient, x, inner(gates), inner(of_gate), &again);
  return {{"output", ops::sigmoid_gate(x, inner(gates))},
          {"output, again", again},
          {"gradient of x", gradient},
          {"gradient of the gate and what lies beside it", of_gate}};
}

Results row_gate(const Place& place, std::int64_t tokens, std::int64_t width) {
  const at::Tensor x = place.normal({tokens, width}, 1), gate = place.normal({tokens, 1}, 2, /*scale=*/3);
  const at::Tensor sum = place.normal({tokens, width}, 3);
  ops::add_row_gate_(sum, x, gate);
  // As in a shared expert: x's gradient, whose products with x are those that the gate's is made of.
  const at::Tensor dx = ops::row_gate(place.normal({tokens, width}, 4), gate);
  return {{"sum", sum},
          {"gradient of x", dx},
          {"gradient of the gate", ops::row_gate_backward(ops::row_products(dx, x), gate)}};
}

}  // namespace

std::vector<OperatorCase> gate_cases() {
  std::vector<OperatorCase> cases;
  add_gated_norm(cases);
  add_norm_of_gated(cases);
  constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {
      {193, 264}, {33, 2048}, {11, 67}, {1, 8}, {0, 16}};
  for (const auto& [op, run] : {std::pair{"sigmoid gate", &sigmoid_gate}, {"row gate", &row_gate}}) {
    for (const auto& size : kSizes) {
      cases.push_back({op, std::to_string(size.first) + " x " + std::to_string(size.second),
                       [size, run = run](const Place& at) { return run(at, size.first, size.second); }});
    }
  }
  return cases;
}

}  // namespace lorikeet::probe
