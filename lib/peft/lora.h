#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "peft/adapter_store.h"
#include "peft/lora_config.h"

namespace lorikeet::peft {

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

  /// One adapted module: indices of its A [rank, in] and B [out, rank] in the store.
  struct Module {
    std::string name;
    std::size_t a, b;
    /// Whether a backward pass has added to their gradients, be it zeros: operators set it.
    std::shared_ptr<bool> reached = std::make_shared<bool>(false);
  };
  const std::vector<Module>& modules() const { return modules_; }

  /// Declares the adapters of one group's modules that match; returns the modules it added.
  std::vector<Module> declare(const std::vector<nn::Module>& modules, std::int64_t in_features, bool is_head);

  /// The number of groups with an adapter so far: the next group's index (a part of its dropout key).
  std::uint32_t groups() const { return groups_; }

  /// Fresh values, made on the CPU by a counter-based generator keyed by (seed, parameter name): the same for
  /// every device, number of devices and library version. To be called after `store().allocate`.
  void initialize(LoraInit init);

  /// Names of the adapted modules whose weight has fewer rows or columns than the rank: a product of A and B
  /// can't have a higher rank than these.
  std::vector<std::string> narrower_than_rank() const;

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
  std::unique_ptr<nn::Head> head(const nn::HeadSpec& spec, const nn::MatrixPlace& table) override;

 private:
  nn::FrozenFactory frozen_;
  LoraAdapters& adapters_;
};

}  // namespace lorikeet::peft
