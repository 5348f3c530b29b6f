// Which implementation attention takes, and the one of plain ATen calls, block by block.
#include <ATen/ATen.h>

#include "ops/attention/attention.h"
#include "ops/attention/blocks.h"
#include "ops/attention/heads.h"
#include "ops/attention/kernel_choice.h"
#include "ops/attention_cases.h"
#include "ops/reference_backward.h"
#include "ops/wide.h"
#include "support/catch.h"
#include "support/counted_memory.h"
#include "support/tolerance.h"

using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr AttentionKernel kFlash = AttentionKernel::kFlash, kEfficient = AttentionKernel::kEfficient,
                          kBlocks = AttentionKernel::kBlocks;

struct Choice {
  int capability;
  at::ScalarType dtype;
  std::int64_t head_dim;
  AttentionOptions options;
  AttentionKernel kernel;
};

const AttentionOptions kPlain{1}, kWindow{1, true, 128}, kBothWays{1, false}, kWindowBothWays{1, false, 128},
    kCap{1, true, 0, 30};

const std::vector<Choice> kChoices = {
    {80, at::kHalf, 128, kPlain, kFlash},
    {90, at::kBFloat16, 64, kWindow, kFlash},
    {120, at::kBFloat16, 256, kWindowBothWays, kFlash},
    // FlashAttention begins with Ampere, the efficient kernels with Turing and for bf16 with Ampere.
    {75, at::kHalf, 128, kPlain, kEfficient},
    {75, at::kHalf, 128, kWindow, kEfficient},
    {75, at::kBFloat16, 128, kPlain, kBlocks},
    {70, at::kHalf, 128, kPlain, kBlocks},
    {0, at::kBFloat16, 128, kPlain, kBlocks},
    {75, at::kFloat, 128, kPlain, kEfficient},
    {90, at::kFloat, 64, kBothWays, kEfficient},
    // A window over both sides is FlashAttention's alone, a cap nobody's.
    {90, at::kFloat, 64, kWindowBothWays, kBlocks},
    {75, at::kHalf, 64, kWindowBothWays, kBlocks},
    {90, at::kBFloat16, 64, kCap, kBlocks},
    {90, at::kFloat, 64, kCap, kBlocks},
    // Sizes of heads.
    {90, at::kBFloat16, 264, kPlain, kEfficient},
    {90, at::kBFloat16, 20, kPlain, kBlocks},
    {90, at::kFloat, 20, kPlain, kEfficient},
    {90, at::kFloat, 18, kPlain, kBlocks},
    {80, at::kBFloat16, 208, kPlain, kFlash},
    {86, at::kBFloat16, 208, kPlain, kEfficient},
    {89, at::kBFloat16, 192, kPlain, kFlash},
    {89, at::kBFloat16, 256, kPlain, kFlash},
    {120, at::kHalf, 224, kPlain, kEfficient},
    {90, at::kDouble, 64, kPlain, kBlocks},
};

// Block by block, with so few scores in one that each case has several.
struct Run {
  at::Tensor out, lse, grad;
};

Run run_blocks(const AttentionCase& c, const at::Tensor& qkv, const at::Tensor& upstream,
               std::int64_t block_scores) {
  const auto sequences = sequences_of(c.lengths);
  Run run{at::empty(upstream.sizes(), qkv.options()),
          at::empty({c.layout.heads, qkv.size(0)}, qkv.options().dtype(wide_type(qkv))),
          at::full_like(qkv, std::nan(""))};
  const auto [q, k, v] = split_heads(qkv, c.layout);
  const auto& ends = sequences.cu_seqlens;
  blocks::attention_forward(q, by_sequence(k, ends), by_sequence(v, ends), ends, c.options, run.out, run.lse,
                            block_scores);
  blocks::attention_backward(upstream, qkv, run.out, run.lse, c.layout, sequences, c.options, run.grad,
                             block_scores);
  return run;
}

}  // namespace

TEST_CASE("attention's implementation follows from compute capability, dtype, head size and options") {
  for (const auto& choice : kChoices) {
    INFO("capability " << choice.capability << ", " << c10::toString(choice.dtype) << ", head_dim "
                       << choice.head_dim << ", window " << choice.options.window << ", cap "
                       << choice.options.soft_cap << ", causal " << choice.options.causal);
    // Whatever the lengths: what cuDNN takes has a test of its own.
    for (const std::int64_t length : {0, 1024}) {
      CHECK(choose_attention_kernel({at::kCUDA, choice.capability, choice.dtype}, choice.head_dim,
                                    choice.options, length) == choice.kernel);
    }
  }
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    CHECK(choose_attention_kernel({at::kCPU, 0, dtype}, 20, kCap) == AttentionKernel::kCpu);
  for (const auto dtype : {at::kHalf, at::kDouble})
    CHECK(choose_attention_kernel({at::kCPU, 0, dtype}, 64, kPlain) == kBlocks);
  CHECK(attention_target(at::ones({1}, at::kHalf)).dtype == at::kHalf);
}

TEST_CASE("cuDNN's attention takes sequences of one length, a multiple of 256, on Hopper") {
  const AttentionTarget hopper{at::kCUDA, 90, at::kBFloat16};
  const auto chosen = [](const AttentionTarget& target, std::int64_t head_dim, std::int64_t length,
                         const AttentionOptions& options = kPlain) {
    return choose_attention_kernel(target, head_dim, options, length);
  };
  for (const std::int64_t length : {256, 1024, 2048, 4096, 4352}) {
    CHECK(chosen(hopper, 128, length) == AttentionKernel::kCudnn);
    CHECK(chosen({at::kCUDA, 90, at::kHalf}, 64, length, kBothWays) == AttentionKernel::kCudnn);
  }
  for (const std::int64_t length : {0, 128, 2047, 2049, 2176}) CHECK(chosen(hopper, 128, length) == kFlash);
  for (const std::int64_t head_dim : {80, 96, 256}) CHECK(chosen(hopper, head_dim, 2048) == kFlash);
  for (const int capability : {80, 89, 100, 120})
    CHECK(chosen({at::kCUDA, capability, at::kBFloat16}, 128, 2048) == kFlash);
  CHECK(chosen({at::kCUDA, 90, at::kFloat}, 128, 2048) == kEfficient);
  CHECK(chosen(hopper, 128, 2048, kWindow) == kFlash);
  CHECK(chosen(hopper, 128, 2048, kCap) == kBlocks);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  CHECK(chosen(hopper, 128, 2048) == kFlash);
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);

  CHECK(common_length({{0, 7, 14}, {}, 7}) == 7);
  CHECK(common_length({{0, 7, 13}, {}, 7}) == 0);
  CHECK(common_length({{0, 0, 7}, {}, 7}) == 0);
}

TEST_CASE("attention block by block agrees with the reference, forward and backward") {
  const Tolerance tolerances[] = {
      {at::kDouble, 1e-13, 1e-13, "sums in fp64"},
      {at::kFloat, 2e-6, 4e-6, "sums in fp32"},
      {at::kBFloat16, 4e-3, 1e-2,
       "one rounding of the output to 8 bits; backward reads that output (dO . O)"},
      {at::kHalf, 1e-3, 2e-3, "one rounding to 11 bits each way"},
  };
  for (const auto& c : kAttentionCases) {
    const auto reference = [&](const at::Tensor& x) {
      return reference::attention(x, c.layout, sequences_of(c.lengths), c.options);
    };
    for (const auto& tolerance : tolerances) {
      const auto qkv = random_qkv(c).to(tolerance.dtype), upstream = random_upstream(c).to(tolerance.dtype);
      const auto expected = reference(qkv.to(at::kDouble));
      const auto gradient = reference_backward(reference, qkv.to(at::kDouble), upstream.to(at::kDouble));
      for (const std::int64_t block_scores : {std::int64_t{1}, std::int64_t{700}, blocks::kBlockScores}) {
        INFO(c.name << ", " << c10::toString(tolerance.dtype) << ", " << block_scores << ": "
                    << tolerance.why);
        const auto run = run_blocks(c, qkv, upstream, block_scores);
        CHECK(relative_distance(run.out, expected) < tolerance.forward);
        CHECK(relative_distance(run.grad, gradient) < tolerance.backward);
      }
    }
  }
}

TEST_CASE("attention block by block needs no memory that grows with a sequence's length squared") {
  const HeadLayout layout{4, 2, 8};
  for (const auto& options : {AttentionOptions{kScale}, AttentionOptions{kScale, true, 0, 1.5},
                              AttentionOptions{kScale, true, 64, 1.5}}) {
    std::vector<std::int64_t> peaks;
    for (const std::int32_t length : {512, 1024, 2048}) {
      const AttentionCase c{"", layout, {length}, options};
      const auto qkv = random_qkv(c).to(at::kFloat), upstream = random_upstream(c).to(at::kFloat);
      const CountedMemory memory;
      (void)run_blocks(c, qkv, upstream, 1 << 14);
      peaks.push_back(memory.peak_bytes());
    }
    INFO(peaks[0] << ", " << peaks[1] << ", " << peaks[2] << " bytes");
    // Twice the tokens, not more than twice the memory.
    CHECK(peaks[1] < 2.2 * peaks[0]);
    CHECK(peaks[2] < 2.2 * peaks[1]);
  }
  // The measure finds scores that exist all at once.
  std::vector<std::int64_t> peaks;
  for (const std::int32_t length : {512, 1024}) {
    const AttentionCase c{"", layout, {length}, {kScale}};
    const auto qkv = random_qkv(c).to(at::kFloat), upstream = random_upstream(c).to(at::kFloat);
    const CountedMemory memory;
    (void)run_blocks(c, qkv, upstream, blocks::kBlockScores);
    peaks.push_back(memory.peak_bytes());
  }
  CHECK(peaks[1] > 3.5 * peaks[0]);
}

TEST_CASE("a token that reads a cache makes no wide copy of it") {
  const std::int64_t heads = 8, kv_heads = 4, head_dim = 64;
  for (const double cap : {0.0, 1.5}) {
    std::vector<std::int64_t> peaks;
    const std::vector<std::int64_t> lengths{16384, 32768};
    for (const std::int64_t length : lengths) {
      const auto q = at::randn({1, heads, head_dim}).to(at::kHalf);
      const auto k = at::randn({length, kv_heads, head_dim}).to(at::kHalf), v = k.flip(0);
      const CountedMemory memory;
      (void)attention_cached(q, {k}, {v}, {0, 1}, {kScale, true, 0, cap});
      peaks.push_back(memory.peak_bytes());
    }
    // The scores, in fp32, grow with the cache (and are copied once at most); a wide copy of it would take
    // kv_heads * head_dim * 4 bytes a token.
    const std::int64_t more = lengths[1] - lengths[0];
    INFO(peaks[0] << " and " << peaks[1] << " bytes");
    CHECK(peaks[1] - peaks[0] <= more * heads * 4 * 2);
  }
}
