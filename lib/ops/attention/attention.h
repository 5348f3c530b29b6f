#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/head_gradients.h"
#include "ops/head_layout.h"

namespace lorikeet::ops {

/// Where the sequences of a packed batch lie: sequence s holds the rows [cu_seqlens[s], cu_seqlens[s + 1]).
/// Empty sequences are allowed. The host's copy spares asking the device.
struct Sequences {
  std::vector<std::int32_t> cu_seqlens;  ///< [S + 1], ascending, from 0 to T
  at::Tensor cu_seqlens_device;          ///< the same on the batch's device, int32 [S + 1]; unused on a CPU
  std::int64_t max_seqlen = 0;           ///< the longest sequence's length
};

struct AttentionOptions {
  double scale = 1;         ///< multiplies q.k
  bool causal = true;       ///< query i sees keys j <= i of its own sequence
  std::int64_t window = 0;  ///< > 0: keys j with i - j < window only; 0: no such limit
  double soft_cap = 0;      ///< > 0: scores become cap * tanh(score / cap) (Gemma 2); 0: off
};

/// What backward needs beside qkv and the output.
struct AttentionStatistics {
  /// [H, T] in fp32 (fp64 for fp64), the logarithm of each softmax's denominator, sinks included; of cuDNN's
  /// [sequences, H, length, 1].
  at::Tensor lse;
  at::Tensor rng_state, unused;  ///< what ATen's kernels want back; undefined where one of ours ran
};

/// Self-attention within each sequence of a packed batch, with grouped key/value heads:
///   out[i, h] = sum_j softmax_j(scale * q[i, h] . k[j, g]) v[j, g],   g = h / (heads / kv_heads).
/// qkv: [T, (H + 2 Hkv) D], floating, contiguous. Returns [T, H D] in the same dtype. Scores, softmax and
/// sums are fp32 (fp64 for fp64 input). What computes it is chosen by device, dtype, options and whether all
/// sequences have one length (kernel_choice.h); but for that a sequence's result doesn't depend on what it is
/// packed with. Memory never grows with a sequence's length squared. Fills `statistics` unless it is null.
/// `sinks`, [H] in any floating dtype, or undefined for none: frozen scores of one more key a query head,
/// which has no value (sinks.h); neither scale nor cap apply to them. Throws Error on shapes, lengths or
/// options that don't fit.
at::Tensor attention(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                     const AttentionOptions& options, AttentionStatistics* statistics = nullptr,
                     const at::Tensor& sinks = {});

/// The gradients of qkv's parts, from dout [T, H D], forward's input, output and statistics, which hold all
/// that is to be known of sinks.
HeadGradients attention_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                                 const AttentionStatistics& statistics, const HeadLayout& layout,
                                 const Sequences& sequences, const AttentionOptions& options);

/// Inference with a cache of keys and values: the queries of sequence s, rows [cu_q[s], cu_q[s + 1]) of q,
/// are the last positions of a sequence whose keys and values are k[s], v[s]. q: [Tq, H, D]; k[s], v[s]:
/// [L_s, Hkv, D] with L_s not less than the number of queries; strides are free except that the last
/// dimension is dense. Returns [Tq, H D] in q's dtype. No gradient. Keys and values are read as they are: no
/// copy of them in a wider type is made. `sinks`: as of attention. Throws Error like attention.
at::Tensor attention_cached(const at::Tensor& q, const std::vector<at::Tensor>& k,
                            const std::vector<at::Tensor>& v, const std::vector<std::int32_t>& cu_q,
                            const AttentionOptions& options, const at::Tensor& sinks = {});

namespace reference {

/// The same by plain ATen calls, sequence by sequence with the whole score matrix, of which sinks are one
/// more column; differentiable, on any device and in fp64.
at::Tensor attention(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                     const AttentionOptions& options, const at::Tensor& sinks = {});
at::Tensor attention_cached(const at::Tensor& q, const std::vector<at::Tensor>& k,
                            const std::vector<at::Tensor>& v, const std::vector<std::int32_t>& cu_q,
                            const AttentionOptions& options, const at::Tensor& sinks = {});

}  // namespace reference
}  // namespace lorikeet::ops
