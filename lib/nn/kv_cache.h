#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lorikeet::nn {

/// What a convolution, a gated delta net or a Mamba 2 layer remembers of a sequence's tokens; undefined where
/// there was none yet.
struct RecurrentState {
  at::Tensor rows;  ///< [taps - 1, channels]: the last ones before its convolution
  /// Of a delta net [value_heads, key_dim, value_dim], of a Mamba 2 layer [heads, state_dim, head_dim], fp32.
  at::Tensor rule;

  /// The `count` rows before these next ones [n, channels], zeros before the first; from then on `rows` are
  /// the last `count` of all.
  at::Tensor move_on(const at::Tensor& next, std::int64_t count);
};

/// What layers remember of the tokens seen so far, of each sequence, for decoding: attention their keys and
/// values, in buffers that grow by doubling, convolutions, gated delta nets and Mamba 2 layers their states.
/// A sequence that ended is dropped with `keep`.
class KvCache {
 public:
  KvCache(std::int64_t layers, std::int64_t sequences);

  /// Appends rows [cu[s], cu[s+1]) of `k` and `v` ([T, kv_heads, head_dim]) to each sequence s of `layer`.
  void append(std::int64_t layer, const at::Tensor& k, const at::Tensor& v,
              const std::vector<std::int32_t>& cu);

  /// One [length, kv_heads, head_dim] view a sequence.
  std::vector<at::Tensor> keys(std::int64_t layer) const { return rows(layer, &Entry::k); }
  std::vector<at::Tensor> values(std::int64_t layer) const { return rows(layer, &Entry::v); }

  /// One state a sequence, to be read and replaced.
  std::vector<RecurrentState*> recurrent(std::int64_t layer);

  /// Forgets all tokens of a sequence, in every layer.
  void clear(std::int64_t sequence);

  /// Keeps only the sequences with these indices, in this order.
  void keep(const std::vector<std::int64_t>& sequences);

 private:
  struct Entry {
    at::Tensor k, v;  // [capacity, kv_heads, head_dim]
    std::int64_t length = 0;
    RecurrentState recurrent;
  };
  std::vector<at::Tensor> rows(std::int64_t layer, at::Tensor Entry::*of) const;

  std::vector<std::vector<Entry>> entries_;  // [layer][sequence]
};

}  // namespace lorikeet::nn
