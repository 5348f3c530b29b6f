#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "peft/adapter_store.h"

namespace lorikeet::peft {

/// LoRA (Hu et al. 2021): y = W x + scale * B A dropout(x), with A and B trained and W frozen.
struct LoraConfig {
  std::int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  bool use_rslora = false;  ///< scale alpha / sqrt(rank) (Kalajdzievski 2023) instead of alpha / rank
  /// Names as PEFT matches them (a module's name, or its end after a dot), or the one entry "all-linear":
  /// every projection but the head.
  std::vector<std::string> target_modules = {"all-linear"};

  double scale() const;
  bool targets_all_linear() const { return target_modules.size() == 1 && target_modules[0] == "all-linear"; }
  /// True if a projection with this checkpoint name gets an adapter. `is_head` marks lm_head.
  bool matches(const std::string& name, bool is_head) const;
};

/// How fresh adapters begin: B zero, A as PEFT draws it.
enum class LoraInit { kKaiming, kGaussian };

/// The adapters of a model: their store, and which modules got one.
class LoraAdapters {
 public:
  LoraAdapters(LoraConfig config, const precision::Policy& policy, std::uint64_t seed)
      : config_(std::move(config)), seed_(seed), store_(policy) {}

  const LoraConfig& config() const { return config_; }
  std::uint64_t seed() const { return seed_; }
  AdapterStore& store() { return store_; }
  const AdapterStore& store() const { return store_; }

  /// One adapted projection: indices of its A [rank, in] and B [out, rank] in the store.
  struct Module {
    std::string name;
    std::size_t a, b;
  };
  const std::vector<Module>& modules() const { return modules_; }

  /// Declares the adapters of one group's projections that match; returns the modules it added.
  std::vector<Module> declare(const std::vector<nn::Projection>& projections, std::int64_t in_features,
                              bool is_head);

  /// The number of groups with an adapter so far: the next group's index (a part of its dropout key).
  std::uint32_t groups() const { return groups_; }

  /// Fresh values, made on the CPU by a counter-based generator keyed by (seed, parameter name): the same for
  /// every device, number of devices and library version. To be called after `store().allocate`.
  void initialize(LoraInit init);

  /// Throws Error when no module matched, naming the targets and the modules there are.
  void require_matches() const;

 private:
  LoraConfig config_;
  std::uint64_t seed_;
  AdapterStore store_;
  std::vector<Module> modules_;
  std::vector<std::string> seen_;  // all linear modules asked for, for error texts
  std::uint32_t groups_ = 0;
};

/// Gives groups with LoRA where names match, frozen ones elsewhere.
class LoraFactory : public nn::LinearFactory {
 public:
  LoraFactory(const precision::Policy& policy, LoraAdapters& adapters)
      : nn::LinearFactory(policy), frozen_(policy), adapters_(adapters) {}

  std::unique_ptr<nn::LinearGroup> linear(const nn::GroupSpec& spec, nn::WeightUnit& unit) override;
  std::unique_ptr<nn::Head> head(const nn::HeadSpec& spec, nn::WeightUnit& unit) override;
  std::unique_ptr<nn::Head> tied_head(const nn::HeadSpec& spec,
                                      std::shared_ptr<const ops::FrozenWeight> table) override;

 private:
  nn::FrozenFactory frozen_;
  LoraAdapters& adapters_;
};

}  // namespace lorikeet::peft
