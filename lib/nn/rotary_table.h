#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/rotary_spec.h"

namespace lorikeet::nn {

struct Batch;

/// Cosines and sines of all positions, fp32 [positions, rotary_dim / 2], extended when a longer sequence
/// comes. Llama 3.1's scaling: "The Llama 3 Herd of Models", as published with the checkpoints' rope_scaling.
/// YaRN: arXiv:2309.00071. LongRoPE (arXiv:2402.13753) has two tables; each sequence takes one of them by its
/// own length.
class RotaryTable {
 public:
  explicit RotaryTable(const RotarySpec& spec);

  struct Rows {
    at::Tensor cos, sin;     // fp32 [T, rotary_dim / 2]
    at::Tensor query_scale;  // fp32 [T, 1], multiplies rotated queries; undefined: 1
  };
  /// The rows of a batch's positions, on their device.
  Rows rows(const Batch& batch) const;

  /// Cosines and sines as they are now: none before the first batch.
  std::vector<at::Tensor> tables() const;

  /// Angular frequency of each pair of dimensions, fp32 [rotary_dim / 2], of sequences of `length`.
  const at::Tensor& inverse_frequencies(std::int64_t length = 1) const;
  /// The longest sequence that takes the first of LongRoPE's tables; none where there is one table.
  std::optional<std::int64_t> switch_length() const;

 private:
  struct Table {
    at::Tensor inverse_frequencies;
    mutable at::Tensor cos, sin;
  };
  bool is_long(std::int64_t length) const;
  at::Tensor query_scale(const Batch& batch) const;
  Rows rows(const Table& table, const at::Tensor& position_ids, std::int64_t positions) const;

  RotarySpec spec_;
  Table table_, long_table_;
};

/// Of a batch, computed once for all layers; empty where a model has no rotary.
using RotaryRows = std::optional<RotaryTable::Rows>;

}  // namespace lorikeet::nn
