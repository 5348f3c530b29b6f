#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/state_space/state_space.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {
namespace {

using Ends = std::vector<std::int32_t>;

// Some heads forget all of a state from a token to the next, others hardly anything.
ops::StateSpaceNumbers numbers_of(const Place& place, std::int64_t heads) {
  return {.a_log = at::linspace(-5, 2, heads, at::kFloat).to(place.wide()).to(place.device),
          .dt_bias = place.wide_normal({heads}, 4),
          .d = place.wide_normal({heads}, 5)};
}

// Columns of a wider matrix, as the projection of a layer has its steps.
at::Tensor steps_of(const Place& place, std::int64_t tokens, std::int64_t heads, std::uint64_t seed) {
  constexpr std::int64_t kBeside = 3;
  return place.normal({tokens, heads + 2 * kBeside}, seed).narrow(1, kBeside, heads);
}

Results space(const Place& place, const ops::StateSpaceLayout& layout, const Ends& ends) {
  const std::int64_t tokens = ends.back();
  const ops::Sequences sequences = place.sequences(ends);
  const ops::StateSpaceNumbers numbers = numbers_of(place, layout.heads);
  const at::Tensor xbc = place.normal({tokens, layout.width()}, 1);
  const at::Tensor dt = steps_of(place, tokens, layout.heads, 2);
  const at::Tensor dout = place.normal({tokens, layout.b_begin()}, 3);
  const at::Tensor ddt = steps_of(place, tokens, layout.heads, 6);
  const at::Tensor dxbc = ops::state_space_backward(dout, xbc, dt, numbers, layout, sequences, ddt);
  // One by one: what is small in one of them may be large in another.
  return {{"output", ops::state_space(xbc, dt, numbers, layout, sequences)},
          {"gradient of x", dxbc.slice(1, 0, layout.b_begin())},
          {"gradient of B", dxbc.slice(1, layout.b_begin(), layout.c_begin())},
          {"gradient of C", dxbc.slice(1, layout.c_begin())},
          {"gradient of dt", ddt}};
}

// Prompts, of which one has no token, then a token each and several, as generation has them.
Results continued(const Place& place, const ops::StateSpaceLayout& layout) {
  std::vector<at::Tensor> states(3);
  Results results;
  std::uint64_t seed = 1;
  for (const Ends& ends : {Ends{0, 0, 70, 75}, Ends{0, 1, 2, 3}, Ends{0, 65, 65, 68}}) {
    const std::string pass = std::to_string(results.size() / 2);
    const at::Tensor xbc = place.normal({ends.back(), layout.width()}, seed++);
    const at::Tensor dt = steps_of(place, ends.back(), layout.heads, seed++);
    results.emplace_back("output of pass " + pass, ops::state_space(xbc, dt, numbers_of(place, layout.heads),
                                                                    layout, place.sequences(ends), &states));
    results.emplace_back("states behind pass " + pass, at::stack(states));
  }
  return results;
}

}  // namespace

std::vector<OperatorCase> state_space_cases() {
  struct Form {
    const char* name;
    ops::StateSpaceLayout layout;
    Ends ends;
  };
  // Lengths on either side of the border of the kernels' chunks of 64 tokens; heads of a group that are more
  // than a block's.
  const Form forms[] = {
      {"6 heads of 64, states of 128", {6, 64, 1, 128}, {0, 0, 1, 64, 65, 193}},
      {"2 groups, heads of 40, states of 72", {4, 40, 2, 72}, {0, 0, 1, 64, 65, 193}},
      {"a head of 128, one sequence", {1, 128, 1, 64}, {0, 130}},
      {"states of 256", {2, 24, 1, 256}, {0, 64, 129, 129, 330}},
      {"heads that no kernel takes", {2, 12, 1, 21}, {0, 9, 9, 40}},
      {"no tokens", {2, 8, 1, 16}, {0, 0}},
  };
  std::vector<OperatorCase> cases;
  for (const Form& form : forms) {
    cases.push_back(
        {"state space", form.name, [form](const Place& at) { return space(at, form.layout, form.ends); }});
  }
  cases.push_back({"state space", "going on from states",
                   [](const Place& at) { return continued(at, {2, 40, 1, 128}); }});
  return cases;
}

}  // namespace lorikeet::probe
