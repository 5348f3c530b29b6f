#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "peft/adapter_store.h"
#include "peft/lora_config.h"
#include "peft/target_rules.h"

namespace lorikeet::peft {

/// How fresh adapters begin: B zero and A as PEFT draws it, or both as a part of the base's weight
/// (peft/base_factors.h), which goes with LoraConfig::starts_from_base.
enum class LoraInit { kKaiming, kGaussian, kPissa, kOlora };

/// The adapters of a model: their store, and which modules got one.
class LoraAdapters {
 public:
  LoraAdapters(LoraConfig config, const precision::Policy& policy, std::uint64_t seed)
      : config_(std::move(config)), rules_(config_), seed_(seed), store_(policy) {}

  const LoraConfig& config() const { return config_; }
  std::uint64_t seed() const { return seed_; }
  AdapterStore& store() { return store_; }
  const AdapterStore& store() const { return store_; }

  enum class Kind { kLinear, kHead, kEmbedding };

  /// One adapted module: indices of its A [rank, in] and B [out, rank] in the store. The embedding is one of
  /// as many outputs as it has rows: its A is what PEFT calls lora_embedding_B, transposed, and its B
  /// lora_embedding_A.
  struct Module {
    std::string name;
    std::size_t a, b;
    std::optional<std::size_t> magnitude = {};  ///< DoRA's [out]; the embedding's is of its columns
    /// What is subtracted of an adapter that starts from the base: A0 [rank, in] and -B0 [out, rank].
    std::optional<std::size_t> start_a = {}, start_b = {};
    double scale;            ///< of its B A
    nn::MatrixPlace weight;  ///< W, rows in group order
    /// All of its segments.
    std::vector<std::size_t> segments() const;
    Kind kind = Kind::kLinear;
    /// The checkpoint's modules whose weights are W, in group order: itself, or, with `slice`, all of a
    /// group.
    std::vector<nn::Module> parts = {};
    std::optional<nn::ExpertSlice> slice = {};  ///< of a module that is an expert's slice of a parameter
    /// What a name of target_modules or target_parameters means: the module's, or the parameter's.
    const std::string& target() const { return slice ? slice->parameter : name; }
    bool is_embedding() const { return kind == Kind::kEmbedding; }
    bool is_table() const { return kind != Kind::kLinear; }
    /// Whether a backward pass has added to their gradients, be it zeros: operators set it.
    std::shared_ptr<bool> reached = std::make_shared<bool>(false);
  };
  const std::vector<Module>& modules() const { return modules_; }

  /// A table that is trained whole: [rows, D] in the store.
  struct Table {
    std::string name;  ///< of its module
    std::size_t segment;
    nn::MatrixPlace weight;      ///< where it begins; the base may have fewer rows
    std::string tied_head = {};  ///< the head that shares it; empty where none does
    std::shared_ptr<bool> reached = std::make_shared<bool>(false);  ///< as Module's
  };
  const std::vector<Table>& tables() const { return tables_; }

  /// Declares the adapters of one group's modules that match; returns the modules it added. `weight` is the
  /// group's matrix, a segment a module; `by_name_only`: GroupSpec's. Throws Error where a start from the
  /// base needs a higher rank than a weight has.
  std::vector<Module> declare(const std::vector<nn::Module>& modules, const nn::MatrixPlace& weight,
                              Kind kind = Kind::kLinear, bool by_name_only = false);
  /// Declares an adapter on all rows of an expert's group where the settings name the parameter that it is a
  /// slice of. Throws Error where they name a module of the group too.
  std::optional<Module> declare_slice(const nn::GroupSpec& group, const nn::MatrixPlace& weight);
  /// Declares the trained copy of a table where the settings save its module, or the head that shares it.
  std::optional<Table> declare_table(const std::string& module, const nn::MatrixPlace& weight,
                                     const std::string& tied_head = {});
  /// The trained table that the head shares with the embedding, where there is one.
  std::optional<Table> shared_table(const std::string& head) const;

  /// The number of groups with an adapter so far: the next group's index (a part of its dropout key).
  std::uint32_t groups() const { return groups_; }

  /// Fresh values, made on the CPU by a counter-based generator keyed by (seed, parameter name): the same for
  /// every device, number of devices and library version. Trained tables are copies of the base's; rows that
  /// it doesn't have are as transformers' resize_token_embeddings makes them: the mean of its rows, and noise
  /// of their covariance times 1e-9. DoRA's magnitudes are the norms of `base`'s rows. What starts from the
  /// base is computed from it, on its device, and may differ in the last bits from device to device; PiSSA's
  /// by subspace iteration where `iterations` has a value. To be called after `store().allocate` and, for
  /// these, after the base's weights were loaded. The embedding never starts from the base: as in PEFT it
  /// gets zeros and a normal distribution then.
  void initialize(LoraInit init, const nn::WeightStore& base, std::optional<std::int64_t> iterations = {});

  /// A [rank, in] and B [out, rank] of a module, or, with what is subtracted behind it, twice as many ranks:
  /// B A is the whole update. In the compute dtype, or as the values are.
  struct Factors {
    at::Tensor a, b;
  };
  Factors computed(const Module& module) const { return factors(module, &AdapterStore::compute); }
  Factors values(const Module& module) const { return factors(module, &AdapterStore::value); }

  /// The adapter of a module on output columns [begin, end) as operators take it.
  ops::LoraProjection projection(const Module& module, std::int64_t begin, std::int64_t end) const;

  /// The dropout of a group's input in a pass: none outside of training.
  std::optional<ops::LoraDropout> dropout(const nn::ForwardContext& context, std::uint32_t group) const;

  /// Euclidean norms of the rows of a module's W + scale * B A, fp32 [out], in group order; of the
  /// embedding's columns, as PEFT's DoraEmbeddingLayer has them. `weight`: the module's W; `squares`: those
  /// of its rows, where they are at hand.
  at::Tensor norms(const Module& module, const ops::FrozenMatrix& weight,
                   const at::Tensor& squares = {}) const;

  /// What norms() takes of W alone, fp32 [out]: ops::row_squares; undefined for an embedding.
  at::Tensor squares(const Module& module, const ops::FrozenMatrix& weight) const;

  /// Names of the adapted modules whose weight has fewer rows or columns than the rank: a product of A and B
  /// can't have a higher rank than these.
  std::vector<std::string> narrower_than_rank() const;

  /// Whether a module without an adapter has the last part of an adapted one's name: that part alone would
  /// name both.
  bool shares_last_parts() const;

  /// Throws Error when no module matched, or a setting matches none: TargetRules::require_used.
  void require_matches() const;

 private:
  Factors factors(const Module& module, const at::Tensor& (AdapterStore::*copy)(std::size_t) const) const;
  void draw(const Module& module, LoraInit init);
  void copy_table(const Table& table, const nn::WeightStore& base);
  void start_from_base(const Module& module, const nn::UnitLoan& weights, LoraInit init,
                       std::optional<std::int64_t> iterations);
  // Calls f(module, loan) for all modules in the order of forward.
  template <typename F>
  void for_each_weight(const nn::WeightStore& base, F f);

  LoraConfig config_;
  TargetRules rules_;
  std::uint64_t seed_;
  AdapterStore store_;
  std::vector<Module> modules_;
  std::vector<Table> tables_;
  std::vector<std::string> seen_;  // all modules asked for, for error texts
  std::vector<std::string> seen_parameters_;
  std::vector<std::string> seen_tables_;  // those of them that could be trained whole
  std::uint32_t groups_ = 0;
};

/// Gives groups with LoRA where names match, frozen ones elsewhere.
class LoraFactory : public nn::LinearFactory {
 public:
  LoraFactory(const precision::Policy& policy, LoraAdapters& adapters)
      : nn::LinearFactory(policy), frozen_(policy), adapters_(adapters) {}

  std::unique_ptr<nn::LinearGroup> linear(const nn::GroupSpec& spec, nn::WeightUnit& unit) override;
  /// Throws Error for a PEFT file's adapter that the head shares with the embedding (ensure_weight_tying).
  std::unique_ptr<nn::Embedding> embedding(const nn::EmbeddingSpec& spec,
                                           const nn::MatrixPlace& table) override;
  std::unique_ptr<nn::Head> head(const nn::HeadSpec& spec, const nn::MatrixPlace& table) override;

 private:
  nn::FrozenFactory frozen_;
  LoraAdapters& adapters_;
};

}  // namespace lorikeet::peft
