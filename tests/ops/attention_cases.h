#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"
#include "support/gradcheck.h"

// The forms of attention that its tests go over.
namespace lorikeet::test {

inline ops::Sequences sequences_of(const std::vector<std::int32_t>& lengths) {
  ops::Sequences sequences;
  sequences.cu_seqlens.push_back(0);
  for (const auto length : lengths) {
    sequences.cu_seqlens.push_back(sequences.cu_seqlens.back() + length);
    sequences.max_seqlen = std::max<std::int64_t>(sequences.max_seqlen, length);
  }
  return sequences;
}

struct AttentionCase {
  const char* name;
  ops::HeadLayout layout;
  std::vector<std::int32_t> lengths;
  ops::AttentionOptions options;
};

inline constexpr double kScale = 0.25;

// Lengths around the 64-row blocks and the 16-row padding of the CPU kernels.
inline const std::vector<AttentionCase> kAttentionCases = {
    {"one sequence", {4, 4, 16}, {130}, {kScale}},
    {"grouped heads", {6, 2, 16}, {70, 64, 1, 15, 17}, {kScale}},
    {"one key head", {4, 1, 8}, {33, 65}, {kScale}},
    {"empty sequences", {2, 2, 16}, {0, 20, 0, 0, 5, 0}, {kScale}},
    {"window", {2, 1, 16}, {200, 10}, {kScale, true, 70}},
    {"window of one", {2, 1, 16}, {40}, {kScale, true, 1}},
    {"soft cap", {2, 1, 16}, {90, 3}, {kScale, true, 0, 1.5}},
    {"window and soft cap", {2, 1, 16}, {150}, {kScale, true, 33, 1.5}},
    {"both directions", {2, 1, 16}, {90, 3}, {kScale, false}},
    {"both directions with a window", {2, 1, 16}, {150}, {kScale, false, 20}},
    {"odd head_dim", {2, 1, 20}, {45}, {kScale}},
};

inline at::Tensor random_qkv(const AttentionCase& c) {
  return leaf({sequences_of(c.lengths).cu_seqlens.back(), c.layout.width()}, 21).detach();
}

inline at::Tensor random_upstream(const AttentionCase& c) {
  return leaf({sequences_of(c.lengths).cu_seqlens.back(), c.layout.heads * c.layout.head_dim}, 22).detach();
}

}  // namespace lorikeet::test
