#include "state_space.h"

#include <ATen/ATen.h>

#include <limits>

#include "ops/state_space/state_space.h"

namespace lorikeet::bench {
namespace {

using namespace lorikeet::ops;
using test::Backward;
using Outputs = std::vector<at::Tensor>;

constexpr std::int64_t kTokens = 2048, kTransformersChunk = 256;
constexpr StateSpaceLayout kLayout{.heads = 64, .head_dim = 64, .groups = 1, .state_dim = 128};

// sums[..., i, j] = x_(j+1) + ... + x_i for i >= j, else -infinity.
at::Tensor segment_sums(const at::Tensor& x) {
  const std::int64_t n = x.size(-1);
  const at::Tensor lower = at::ones({n, n}, at::kBool).tril();
  return x.unsqueeze(-1)
      .expand({-1, -1, n, n})
      .masked_fill(lower.tril(-1).logical_not(), 0)
      .cumsum(-2)
      .masked_fill(lower.logical_not(), -std::numeric_limits<double>::infinity());
}

// As transformers does it without kernels of its own: by chunks, in fp32. Of one sequence and one group.
at::Tensor by_chunks(const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers) {
  constexpr std::int64_t kChunks = kTokens / kTransformersChunk;
  const at::Tensor step = at::softplus(dt.to(at::kFloat) + numbers.dt_bias);
  const auto parts =
      xbc.to(at::kFloat).split_with_sizes({kLayout.b_begin(), kLayout.state_dim, kLayout.state_dim}, 1);
  const at::Tensor x = parts[0].view({kTokens, kLayout.heads, kLayout.head_dim});
  const auto chunks = [](const at::Tensor& rows) { return rows.unflatten(0, {kChunks, kTransformersChunk}); };
  const at::Tensor u = chunks(x * step.unsqueeze(2)), b = chunks(parts[1]), c = chunks(parts[2]);
  const at::Tensor a = chunks(step * -numbers.a_log.exp()).permute({2, 0, 1});  // [heads, chunks, tokens]
  const at::Tensor sums = a.cumsum(-1), within = segment_sums(a).exp();
  const at::Tensor scores = at::einsum("cln,csn->cls", {c, b});
  const at::Tensor inner = at::einsum("cls,hcls,cshp->clhp", {scores, within, u});
  const at::Tensor kept = (sums.slice(2, kTransformersChunk - 1) - sums).exp();
  at::Tensor states = at::einsum("cln,hcl,clhp->chpn", {b, kept, u});
  states = at::cat({at::zeros_like(states.slice(0, 0, 1)), states});
  const at::Tensor between =
      segment_sums(at::constant_pad_nd(sums.select(2, kTransformersChunk - 1), {1, 0}).unsqueeze(0))
          .exp()
          .squeeze(0);
  const at::Tensor before = at::einsum("hzc,chpn->zhpn", {between, states}).slice(0, 0, kChunks);
  const at::Tensor outer = at::einsum("cln,chpn,hcl->clhp", {c, before, sums.exp()});
  const at::Tensor out = (inner + outer).reshape_as(x) + x * numbers.d.unsqueeze(1);
  return out.flatten(1).to(xbc.scalar_type());
}

}  // namespace

void bench_state_space(const Settings& s) {
  const Sequences sequences{.cu_seqlens = {0, kTokens}, .max_seqlen = kTokens};
  const at::Tensor xbc = at::randn({kTokens, kLayout.width()}).to(s.dtype);
  const at::Tensor dt = at::randn({kTokens, kLayout.heads}).to(s.dtype);
  const at::Tensor upstream = at::randn({kTokens, kLayout.b_begin()}).to(s.dtype);
  const at::Tensor ddt = at::empty_like(dt);
  const StateSpaceNumbers numbers{.a_log = at::linspace(0, 2.77, kLayout.heads),
                                  .dt_bias = at::linspace(-7, 0, kLayout.heads),
                                  .d = at::ones({kLayout.heads})};
  compare(s, {.name = "state_space",
              .input = xbc,
              .upstream = upstream,
              .here =
                  [=](const auto& v, Backward& backward) {
                    backward = [=](const auto& dy) {
                      return state_space_backward(dy, v, dt, numbers, kLayout, sequences, ddt);
                    };
                    return state_space(v, dt, numbers, kLayout, sequences);
                  },
              .reference = {},
              .aten = [=](const auto& v) -> Outputs { return {by_chunks(v, dt, numbers)}; }});
}

}  // namespace lorikeet::bench
