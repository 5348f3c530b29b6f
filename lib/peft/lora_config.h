#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/checkpoint_names.h"

namespace lorikeet::peft {

/// What people name as a target: "model.layers.3.mlp.up_proj" -> "up_proj".
std::string last_part(std::string_view module);

/// LoRA (Hu et al. 2021): y = W x + scale * B A dropout(x), with A and B trained and W frozen. The settings
/// of which modules get what are PEFT's; TargetRules applies them.
struct LoraConfig {
  template <typename T>
  using Pattern = std::vector<std::pair<std::string, T>>;

  std::int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  /// Each row of W + scale * B A brought to a trained length (DoRA, Liu et al. 2024).
  bool use_dora = false;
  /// The adapter begins as a part of W, and that beginning is subtracted (PiSSA, Meng et al. 2024; OLoRA,
  /// Buyukakyuz 2024): y = W x + scale * (B A - B0 A0) x.
  bool starts_from_base = false;
  bool freeze_a = false;    ///< A stays as it began (LoRA-FA, Zhang et al. 2023)
  bool use_rslora = false;  ///< scale alpha / sqrt(rank) (Kalajdzievski 2023) instead of alpha / rank
  /// Names of modules, each whole or its end after a dot; or one regular expression (is_pattern) that whole
  /// names match; or the one entry "all-linear": every projection but the head.
  std::vector<std::string> target_modules = {"all-linear"};
  /// Parameters that hold the matrices of all experts of a layer (nn::ExpertSlice), by their names or the
  /// ends of these after a dot: each expert gets an adapter on its matrix. What narrows target_modules
  /// doesn't narrow them; ranks and alphas go by these names. Not with dropout, DoRA or a start from the
  /// base.
  std::vector<std::string> target_parameters = {};
  /// Of the targets, the ones that get none: names or one regular expression.
  std::vector<std::string> exclude_modules = {};
  /// Of those, only the ones in these layers; empty: in all. A module's layer is the number in its name
  /// behind one of `layers_pattern`, regular expressions, or, without any, the first number.
  std::vector<std::int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  /// Other ranks and alphas for modules whose name, or its end after a dot, matches a regular expression; the
  /// first that matches counts.
  Pattern<std::int64_t> rank_pattern = {};
  Pattern<double> alpha_pattern = {};
  /// Modules that are trained whole, in place of an adapter: the embedding, the head or both, by their names
  /// or the ends of these after a dot.
  std::vector<std::string> modules_to_save = {};
  /// Both of them, whatever they are called: tokens are added.
  bool trains_tables = false;
  /// Of a model whose head shares the embedding's table: that either of them stands for the one table in
  /// modules_to_save. Else each is trained alone, the other one stays with the base's.
  bool ensure_weight_tying = false;
  /// Rows of trained tables, where that is more than the base has: tokens were added.
  std::int64_t table_rows = 0;
  /// Whether an adapter file lists whole names: the checkpoint has other modules, of a vision tower or of
  /// experts, with the same last parts.
  bool write_whole_names = false;
  /// How the base's checkpoint calls its modules: an older adapter file may call them so.
  io::CheckpointNames checkpoint_names = {};
  /// Whether these settings are an adapter file's: what matches nothing there is no slip of this user's.
  bool from_file = false;
  /// Of an adapter file: the modules that it has tensors of, under its own names.
  std::set<std::string, std::less<>> modules_in_file = {};

  bool targets_all_linear() const { return target_modules.size() == 1 && target_modules[0] == "all-linear"; }
  /// Whether only some of what target_modules names may get an adapter, or it names nothing but a pattern.
  bool narrows_targets() const;
  /// Whether the targets are names, all of whose modules get an adapter.
  bool targets_by_names() const { return !targets_all_linear() && !narrows_targets(); }
};

/// The settings of the plain adapter that computes the same: one that starts from the base has twice the
/// rank, [A; A0] and [B, -B0], at the same scale, as PEFT converts it. Others are what they are.
LoraConfig as_plain(LoraConfig config);

/// True for what only a regular expression can be: names of modules have letters, digits, '_', '-' and dots.
bool is_pattern(const std::vector<std::string>& names);

}  // namespace lorikeet::peft
