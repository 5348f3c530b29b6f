#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "peft/adapter_contents.h"

// Sums, multiples and other ranks of adapters. All but `flattened` throw Error for DoRA adapters: the rows of
// W + scale * B A are brought to a length there, so that W's change isn't linear in scale * B A. Copies of
// modules_to_save hold the base's weight too, which isn't known here: what would need their change alone is
// an Error.
namespace lorikeet::peft {

/// `adapter` times a finite factor that isn't zero: alphas are multiplied by its size, Bs by its sign. Throws
/// Error for an adapter with modules_to_save, unless the factor is 1.
AdapterContents scaled(const AdapterContents& adapter, double factor);

/// sum of weights[i] * adapters[i], exactly: a module's rank is the sum of the ranks of its adapters, a
/// module that one lacks counts as zero there. Written without rsLoRA, in the widest dtype, with the first
/// one's base and dropout. Copies of modules_to_save are summed with the same weights, which is base + sum of
/// weights[i] * change[i] where the weights add up to 1. Throws Error for modules whose shapes differ, for
/// weights that are zero or not finite, and, where one has such copies, unless all have the same ones and the
/// weights add up to 1; and for adapters whose files hold different tables of the base.
AdapterContents weighted_sum(const std::vector<AdapterContents>& adapters,
                             const std::vector<double>& weights);

/// A module that some of several adapters lack.
struct AbsentModule {
  std::string name;
  std::vector<std::size_t> lacking;  ///< which of the adapters
};
std::vector<AbsentModule> absent_modules(const std::vector<AdapterContents>& adapters);

/// What a lower rank took from a module: Frobenius norms of scale * B A and of what was left out of it.
struct RankLoss {
  std::string module;
  std::int64_t rank_before = 0, rank_after = 0;
  double norm = 0, lost_norm = 0;
  double lost_share() const;  ///< lost_norm of norm, 0 for a norm of 0
};

/// The same of all modules together.
RankLoss total_loss(const std::vector<RankLoss>& modules);

struct Shrunk {
  AdapterContents adapter;
  std::vector<RankLoss> modules;
};

/// Every module's scale * B A at a lower rank, the nearest there is: at most `rank`, or the least rank that
/// holds the share `keep` (above 0, at most 1) of its squared Frobenius norm; one of both must be given.
/// Where that isn't below a module's rank its factors stay as they are to the bit. Scales stay; without
/// rsLoRA. Copies of modules_to_save stay as they are.
Shrunk shrunk(const AdapterContents& adapter, std::optional<std::int64_t> rank, std::optional<double> keep);

/// The same adapter with one rank and one alpha for all modules and without rsLoRA: its file has no patterns,
/// so that programs that know lora_alpha / r alone scale it right. A gets rows of zeros, B columns of zeros,
/// up to `rank`, by default the largest rank of a module. The scale that most modules have is everyone's; B
/// is multiplied where a module's own was another, and stays to the bit elsewhere. DoRA's magnitudes and
/// copies of modules_to_save stay. Throws Error for a rank below that of a module.
AdapterContents flattened(const AdapterContents& adapter, std::optional<std::int64_t> rank);

}  // namespace lorikeet::peft
