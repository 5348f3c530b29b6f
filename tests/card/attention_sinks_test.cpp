// The kernel of attention sinks on the fake card, alone and behind each kernel of attention.
#include <ATen/ATen.h>

#include <cmath>

#include "card/kernel_checks.h"
#include "ops/attention/attention.h"
#include "ops/attention/sinks.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr const char* kFile = "sinks_cuda.cu";

at::Tensor sinks_of(std::int64_t heads) { return (random({heads}, 41) * 2).to(at::kFloat); }

struct Applied {
  at::Tensor out, lse;
};

Applied random_applied(std::int64_t tokens, std::int64_t heads, std::int64_t head_dim, at::ScalarType dtype) {
  return {random({tokens, heads * head_dim}, 42).to(dtype),
          random({heads, tokens}, 43).mul(3).to(at::kFloat)};
}

// Gives `in` its sinks on the card, with statistics where `place` puts them, and in fp64 on the host.
// Returns the launches of the kernel.
template <typename Place>
std::int64_t check_applied(const Applied& in, const at::Tensor& sinks, double tolerance, const Place& place) {
  const at::Tensor out = in.out.to(kCard), lse = place(in.lse.to(kCard)), of_heads = sinks.to(kCard);
  card::reset_report();
  apply_sinks_(out, lse, of_heads);
  CHECK(card::report().hazards.empty());
  CHECK(card::report().waits.empty());
  const std::int64_t launches = card::report().kernels[kFile];
  const at::Tensor exact_out = in.out.to(at::kDouble), exact_lse = place(in.lse.to(at::kDouble));
  ops::reference::apply_sinks_(exact_out, exact_lse, sinks);
  CHECK(relative_distance(out.cpu(), exact_out) < tolerance);
  CHECK(relative_distance(lse.cpu(), exact_lse) < 1e-6);
  return launches;
}

at::Tensor as_it_is(const at::Tensor& lse) { return lse.clone(); }
at::Tensor by_token(const at::Tensor& lse) { return lse.t().contiguous().t(); }
// Of `count` sequences of one length.
auto by_sequence(std::int64_t count) {
  return [count](const at::Tensor& lse) {
    return lse.view({lse.size(0), count, -1}).transpose(0, 1).contiguous().unsqueeze(3);
  };
}

struct Case {
  const char* name;
  const char* calls;  // ATen's operator that computes it, without "aten::"
  at::ScalarType dtype;
  HeadLayout layout;
  std::vector<std::int32_t> ends;
  AttentionOptions options;
};

const std::vector<Case> kCases = {
    {"FlashAttention", "_flash_attention_backward", at::kBFloat16, {6, 2, 16}, {0, 0, 33, 34, 90}, {0.25}},
    {"FlashAttention, window",
     "_flash_attention_backward",
     at::kHalf,
     {4, 2, 24},
     {0, 50, 57},
     {0.25, true, 9}},
    {"efficient", "_efficient_attention_backward", at::kFloat, {6, 2, 16}, {0, 0, 33, 34, 90}, {0.25}},
    {"cuDNN", "_cudnn_attention_backward", at::kBFloat16, {2, 1, 64}, {0, 256, 512}, {0.125}},
    {"blocks", "bmm.dtype", at::kBFloat16, {4, 2, 16}, {0, 50, 57}, {0.25, true, 0, 1.5}},
};

Sequences sequences_of(const Case& c, bool on_card) {
  Sequences sequences{.cu_seqlens = c.ends};
  for (std::size_t s = 0; s + 1 < c.ends.size(); ++s)
    sequences.max_seqlen = std::max<std::int64_t>(sequences.max_seqlen, c.ends[s + 1] - c.ends[s]);
  if (on_card) sequences.cu_seqlens_device = at::tensor(c.ends, at::kInt).to(kCard);
  return sequences;
}

Applied attend(const Case& c, const at::Tensor& qkv, const at::Tensor& dout, const Sequences& sequences,
               const at::Tensor& sinks) {
  AttentionStatistics statistics;
  const at::Tensor out = attention(qkv, c.layout, sequences, c.options, &statistics, sinks);
  return {out, pack(attention_backward(dout, qkv, out, statistics, c.layout, sequences, c.options))};
}

}  // namespace

TEST_CASE("sinks on a card agree with their reference in every dtype, number of heads and layout") {
  struct Size {
    std::int64_t tokens, heads, head_dim;
  };
  // One lane a head, lanes without elements, a warp a head, several accesses a lane; blocks that are not
  // full.
  for (const Size size : {Size{1, 1, 8}, Size{7, 5, 8}, Size{8, 3, 80}, Size{42, 9, 64}, Size{30, 2, 128},
                          Size{12, 3, 256}, Size{6, 2, 392}}) {
    for (const auto& tolerance : kTolerances) {
      if (tolerance.dtype == at::kDouble) continue;
      CAPTURE(size.tokens, size.heads, size.head_dim, c10::toString(tolerance.dtype));
      const Applied in = random_applied(size.tokens, size.heads, size.head_dim, tolerance.dtype);
      const at::Tensor sinks = sinks_of(size.heads);
      CHECK(check_applied(in, sinks, tolerance.forward, as_it_is) == 1);
      CHECK(check_applied(in, sinks, tolerance.forward, by_token) == 1);
      CHECK(check_applied(in, sinks, tolerance.forward, by_sequence(1)) == 1);
      if (size.tokens % 6 == 0) CHECK(check_applied(in, sinks, tolerance.forward, by_sequence(6)) == 1);
    }
  }
}

TEST_CASE("sinks on a card that are far from all scores leave nothing, or all") {
  const Applied in = random_applied(20, 3, 16, at::kFloat);
  for (const double sink : {-1e4, 1e4}) {
    const at::Tensor out = in.out.to(kCard), lse = in.lse.to(kCard);
    apply_sinks_(out, lse, at::full({3}, sink).to(kCard));
    CHECK(at::equal(out.cpu(), sink < 0 ? in.out : at::zeros_like(in.out)));
    CHECK(at::equal(lse.cpu(), sink < 0 ? in.lse : at::full_like(in.lse, sink)));
  }
  CHECK(check_applied(in, at::full({3}, 30.0), 4e-6, as_it_is) == 1);
  CHECK(check_applied(in, at::full({3}, -30.0), 4e-6, as_it_is) == 1);
}

TEST_CASE("a NaN among a card's statistics isn't hidden by sinks") {
  const Applied in = random_applied(20, 2, 8, at::kFloat);
  in.lse[1][10] = std::nan("");
  const at::Tensor out = in.out.to(kCard), lse = in.lse.to(kCard);
  apply_sinks_(out, lse, sinks_of(2).to(kCard));
  CHECK(lse.cpu().isnan().sum().item<std::int64_t>() == 1);
  CHECK(out.cpu().isnan().sum().item<std::int64_t>() == 8);
}

TEST_CASE("sinks on a card that its kernel doesn't take go through the reference") {
  const auto launches = [](std::int64_t head_dim, at::ScalarType dtype) {
    return check_applied(random_applied(9, 3, head_dim, dtype), sinks_of(3), 4e-3, as_it_is);
  };
  CHECK(launches(12, at::kFloat) == 1);
  CHECK(launches(12, at::kBFloat16) == 0);
  CHECK(launches(6, at::kFloat) == 0);
  const Applied in = random_applied(9, 3, 16, at::kHalf);
  const at::Tensor memory = at::empty({in.out.numel() + 1}, in.out.options().device(kCard));
  const at::Tensor shifted = memory.narrow(0, 1, in.out.numel()).view(in.out.sizes()).copy_(in.out);
  const at::Tensor out = in.out.to(kCard), lse = in.lse.to(kCard), other = in.lse.to(kCard);
  const at::Tensor sinks = sinks_of(3).to(kCard);
  apply_sinks_(out, lse, sinks);
  card::reset_report();
  apply_sinks_(shifted, other, sinks);
  CHECK(card::report().kernels[kFile] == 0);
  CHECK(relative_distance(shifted.cpu(), out.cpu()) < 1e-3);
  apply_sinks_(out.narrow(0, 0, 0), lse.narrow(1, 0, 0), sinks);
  CHECK(card::report().kernels[kFile] == 0);
}

TEST_CASE("every kernel of attention on a card gives the CPU's results with sinks, forward and backward") {
  for (const Case& c : kCases) {
    INFO(c.name);
    const at::Tensor qkv = random({c.ends.back(), c.layout.width()}, 44).to(c.dtype);
    const at::Tensor dout = random({c.ends.back(), c.layout.heads * c.layout.head_dim}, 45).to(c.dtype);
    const at::Tensor sinks = sinks_of(c.layout.heads);
    const Applied cpu = attend(c, qkv, dout, sequences_of(c, false), sinks);
    const Sequences sequences = sequences_of(c, true);
    const at::Tensor card_qkv = qkv.to(kCard), card_dout = dout.to(kCard), card_sinks = sinks.to(kCard);
    card::reset_report();
    const Applied found = attend(c, card_qkv, card_dout, sequences, card_sinks);
    CHECK(card::report().hazards.empty());
    CHECK(card::report().waits.empty());
    CHECK(card::report().kernels[kFile] == 1);
    CHECK(card::report().operators[std::string("aten::") + c.calls] > 0);
    // As without sinks (attention_test.cpp), and 16-bit outputs are rounded a second time.
    const double tolerance = c.dtype == at::kFloat ? 5e-5 : 1.5e-2;
    CHECK(relative_distance(found.out.cpu(), cpu.out) < tolerance);
    CHECK(relative_distance(found.lse.cpu(), cpu.lse) < tolerance);
    const at::Tensor alone = attention(card_qkv, c.layout, sequences, c.options, nullptr, card_sinks);
    CHECK(at::equal(alone.cpu(), found.out.cpu()));
  }
}

TEST_CASE("a token that reads a cache on a card has sinks") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t window : {0, 7}) {
      INFO(c10::toString(dtype) << ", window " << window);
      const AttentionOptions options{0.25, true, window};
      const at::Tensor q = random({4, 4, 16}, 46).to(dtype), sinks = sinks_of(4);
      std::vector<at::Tensor> k, v, card_k, card_v;
      for (const std::int64_t length : {40, 9, 5}) {
        k.push_back(random({64, 2, 16}, 47).to(dtype).narrow(0, 0, length));
        v.push_back(random({64, 2, 16}, 48).to(dtype).narrow(0, 0, length));
        card_k.push_back(k.back().to(kCard));
        card_v.push_back(v.back().to(kCard));
      }
      const std::vector<std::int32_t> cu_q{0, 1, 1, 4};
      const at::Tensor cpu = attention_cached(q, k, v, cu_q, options, sinks);
      const at::Tensor card_q = q.to(kCard), card_sinks = sinks.to(kCard);
      card::reset_report();
      const at::Tensor found = attention_cached(card_q, card_k, card_v, cu_q, options, card_sinks);
      CHECK(card::report().kernels[kFile] == 1);
      CHECK(card::report().waits.empty());
      CHECK(card::report().hazards.empty());
      CHECK(relative_distance(found.cpu(), cpu) < (dtype == at::kFloat ? 1e-5 : 1.5e-2));
    }
  }
}
