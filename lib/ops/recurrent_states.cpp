#include "ops/recurrent_states.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "ops/check.h"
#include "ops/cuda_launch.h"

namespace lorikeet::ops {

void check_follow(const char* op, const at::Tensor& rows, const Sequences& sequences) {
  const std::vector<std::int32_t>& ends = sequences.cu_seqlens;
  check(!ends.empty() && ends.front() == 0 && ends.back() == rows.size(0) &&
            std::is_sorted(ends.begin(), ends.end()),
        op, "sequences that follow each other from the first row to the last",
        [&] { return describe(rows); });
}

void check_states(const char* op, const std::vector<at::Tensor>& states, at::IntArrayRef sizes,
                  const char* expected, const Sequences& sequences) {
  check(states.size() + 1 == sequences.cu_seqlens.size(), op, "a state for each sequence",
        [&] { return std::to_string(states.size()); });
  for (const at::Tensor& state : states)
    check_tensor(!state.defined() || state.sizes() == sizes, op, expected, state);
}

std::vector<at::Tensor> renew_states(std::vector<at::Tensor>& states,
                                     const std::vector<std::int64_t>& lengths, at::IntArrayRef sizes,
                                     const at::Tensor& like) {
  const auto options = like.options().dtype(at::kFloat);
  std::vector<at::Tensor> before(lengths.size());
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    at::Tensor& state = states[s];
    if (state.defined()) before[s] = state.to(at::kFloat).contiguous();
    if (lengths[s] == 0) {
      state = state.defined() ? before[s] : at::zeros(sizes, options);
    } else {
      state = at::empty(sizes, options);
    }
  }
  return before;
}

at::Tensor packed_states(const std::vector<at::Tensor>& states, at::IntArrayRef sizes,
                         const at::Tensor& like) {
  if (std::none_of(states.begin(), states.end(), [](const at::Tensor& state) { return state.defined(); }))
    return {};
  std::vector<at::Tensor> all;
  all.reserve(states.size());
  for (const at::Tensor& state : states) {
    all.push_back(state.defined() ? state.to(at::kFloat)
                                  : at::zeros(sizes, like.options().dtype(at::kFloat)));
  }
  return all.size() == 1 ? aligned(all.front().contiguous()).unsqueeze(0) : at::stack(all);
}

}  // namespace lorikeet::ops
