#include <ATen/ATen.h>

#include "ops/state_space/state_space.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor state_space(const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers,
                       const StateSpaceLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states) {
  const at::ScalarType wide = wide_type(xbc);
  const at::Tensor all = xbc.to(wide);
  const std::int64_t copies = layout.heads / layout.groups;
  const auto of_heads = [&](std::int64_t begin) {
    return all.narrow(1, begin, layout.groups * layout.state_dim)
        .unflatten(1, {layout.groups, 1, layout.state_dim})
        .expand({-1, -1, copies, -1})
        .flatten(1, 2);
  };
  const at::Tensor x = all.narrow(1, 0, layout.b_begin()).unflatten(1, {layout.heads, layout.head_dim});
  const at::Tensor b = of_heads(layout.b_begin()), c = of_heads(layout.c_begin());
  const at::Tensor step = at::softplus(dt.to(wide) + numbers.dt_bias.to(wide));
  const at::Tensor kept = at::exp(-numbers.a_log.to(wide).exp() * step);
  const at::Tensor steps = x * step.unsqueeze(2), passed = x * numbers.d.to(wide).unsqueeze(1);
  // Of each token: a select's backward would make a gradient of all tokens for each of them.
  const auto of_tokens = [](const at::Tensor& all_rows) { return all_rows.unbind(0); };
  const auto xs = of_tokens(steps.unsqueeze(2)), bs = of_tokens(b.unsqueeze(3)),
             cs = of_tokens(c.unsqueeze(3)), decays = of_tokens(kept.unsqueeze(2).unsqueeze(3)),
             beside = of_tokens(passed);
  std::vector<at::Tensor> rows;
  for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s) {
    at::Tensor state = at::zeros({layout.heads, layout.state_dim, layout.head_dim}, all.options());
    if (states != nullptr && (*states)[s].defined()) state = (*states)[s].to(wide);
    for (auto t = static_cast<std::size_t>(sequences.cu_seqlens[s]);
         t < static_cast<std::size_t>(sequences.cu_seqlens[s + 1]); ++t) {
      state = state * decays[t] + bs[t] * xs[t];
      rows.push_back(((state * cs[t]).sum(1) + beside[t]).flatten());
    }
    if (states != nullptr) (*states)[s] = state;
  }
  if (rows.empty()) return at::zeros({xbc.size(0), layout.b_begin()}, xbc.options());
  return at::stack(rows).to(xbc.scalar_type());
}

}  // namespace lorikeet::ops::reference
