#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lorikeet::nn {

/// How a module stores the rows of its weight: `groups` repetitions of all parts, part after part, where part
/// p has `parts[p] * unit` rows. This is the *module order*: that of checkpoints, PEFT's adapters and merged
/// weights. Blocks compute in *group order*: all repetitions of part 0, then all of part 1, and so on, so
/// that attention always sees [q heads | k heads | v heads] and an MLP [gate | up].
///
/// With H query heads of D rows, K key-value heads and I intermediate rows:
///   Phi-3 qkv_proj       {1, {H, K, K}, D}        gate_up_proj  {1, {1, 1}, I}
///   Falcon-7B            {1, {H, 1, 1}, D}
///   Falcon-40B           {K, {H / K, 1, 1}, D}
///   GPT-NeoX             {H, {1, 1, 1}, D}
struct RowOrder {
  std::int64_t groups = 1;
  std::vector<std::int64_t> parts;  ///< in units of rows; empty (with the other defaults): any number of rows
  std::int64_t unit = 1;

  /// True where module order and group order are the same: one repetition, or one part.
  bool is_identity() const { return groups == 1 || parts.size() < 2; }
  /// groups * sum(parts) * unit: the rows of a module with this order. 0 where there are no parts.
  std::int64_t rows() const;

  bool operator==(const RowOrder&) const = default;
};

/// Rows that follow each other in both orders: `count` rows, from `module_row` on in module order and from
/// `group_row` on in group order.
struct RowRun {
  std::int64_t module_row = 0;
  std::int64_t group_row = 0;
  std::int64_t count = 0;

  bool operator==(const RowRun&) const = default;
};

/// The fewest runs that cover `rows` rows, in module order. `rows` must be `order.rows()` where there are
/// parts.
std::vector<RowRun> row_runs(const RowOrder& order, std::int64_t rows);

/// What the checkpoint, PEFT and merge know as one linear module: one weight, one adapter A and B. Its rows
/// are a contiguous range of its group's rows; `order` permutes inside of this range.
struct Module {
  std::string name;  ///< the checkpoint's name, "model.layers.0.self_attn.q_proj"
  std::int64_t out_features;
  RowOrder order;
};

/// An expert's group as a slice of a parameter of all experts of a layer, which is how transformers 5 holds
/// them and PEFT's target_parameters names them. An adapter on the parameter is one on all rows of each
/// group.
struct ExpertSlice {
  std::string parameter;  ///< "model.layers.0.mlp.experts.gate_up_proj"
  std::int64_t expert = 0, count = 1;
  RowOrder order = {};  ///< in which the parameter has the rows of the group's modules
  bool only = false;    ///< the group's modules never get adapters of their own

  /// "model.layers.0.mlp.experts.3.gate_up_proj"
  std::string name() const;
};

/// Throws Error, naming the module, unless its order has `out_features` rows and no empty part.
void require_valid_order(const Module& module);

}  // namespace lorikeet::nn
