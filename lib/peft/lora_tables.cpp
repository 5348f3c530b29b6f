// The two ends of a model that read a table of tokens, with an adapter or trained whole.

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "nn/frozen_embedding.h"
#include "nn/frozen_head.h"
#include "ops/embedding/embedding.h"
#include "peft/dora_magnitudes.h"
#include "peft/lora.h"

namespace lorikeet::peft {
namespace {

class LoraEmbedding : public nn::FrozenEmbedding {
 public:
  LoraEmbedding(const nn::EmbeddingSpec& spec, const nn::MatrixPlace& table, const LoraAdapters& adapters,
                LoraAdapters::Module module)
      : nn::FrozenEmbedding(spec, table, adapters.store().policy()),
        adapters_(adapters),
        module_(std::move(module)),
        magnitudes_(adapters, module_),
        padding_id_(spec.padding_id) {}

  bool learns() const override { return true; }

 protected:
  at::Tensor lookup(const at::Tensor& ids, const ops::FrozenMatrix& table, DType out,
                    nn::EmbeddingKept* kept) const override {
    at::Tensor rows = ops::lora_embedding(ids, table, projection(), out);
    const auto dora = magnitudes_.of(table);
    if (!dora) return rows;
    at::Tensor y = ops::scale_columns(rows, dora->factors(), {});
    if (kept != nullptr) kept->rows = std::move(rows);
    return y;
  }
  void lookup_backward(const at::Tensor& dy, const at::Tensor& ids,
                       const nn::EmbeddingKept& kept) const override {
    if (!module_.magnitude) return ops::lora_embedding_backward(dy, ids, projection(), padding_id_);
    const ops::DoraMagnitude dora = magnitudes_.last();
    const auto back = ops::scale_columns_backward(dy, kept.rows, dora.factors());
    dora.add_gradient(back.factors);
    ops::lora_embedding_backward(back.dx, ids, projection(), padding_id_);
  }

 private:
  ops::LoraProjection projection() const { return adapters_.projection(module_, 0, module_.weight.rows); }

  const LoraAdapters& adapters_;
  LoraAdapters::Module module_;
  DoraMagnitudes magnitudes_;
  std::int64_t padding_id_;
};

// An embedding whose table is the store's.
class TrainedEmbedding : public nn::FrozenEmbedding {
 public:
  TrainedEmbedding(const nn::EmbeddingSpec& spec, const AdapterStore& store, LoraAdapters::Table table)
      : nn::FrozenEmbedding(spec, table.weight, store.policy()),
        store_(store),
        own_(std::move(table)),
        padding_id_(spec.padding_id) {}

  bool learns() const override { return true; }

 protected:
  at::Tensor lookup(const at::Tensor& ids, const ops::FrozenMatrix& /*table*/, DType out,
                    nn::EmbeddingKept* /*kept*/) const override {
    return ops::embedding(ids, ops::frozen_matrix(store_.compute(own_.segment)), out);
  }
  void lookup_backward(const at::Tensor& dy, const at::Tensor& ids,
                       const nn::EmbeddingKept& /*kept*/) const override {
    at::Tensor gradient = store_.gradient(own_.segment);
    ops::embedding_backward(gradient, dy, ids, 1, padding_id_);
    *own_.reached = true;
  }

 private:
  const AdapterStore& store_;
  LoraAdapters::Table own_;
  std::int64_t padding_id_;
};

class LoraHead : public nn::FrozenHead {
 public:
  LoraHead(const nn::HeadSpec& spec, const nn::MatrixPlace& table, const LoraAdapters& adapters,
           std::uint32_t group, LoraAdapters::Module module)
      : nn::FrozenHead(spec, table, adapters.store().policy()),
        adapters_(adapters),
        group_(group),
        module_(std::move(module)),
        magnitudes_(adapters, module_),
        vocab_size_(spec.vocab_size) {}

 protected:
  std::vector<ops::LoraProjection> adapters() const override {
    return {adapters_.projection(module_, 0, vocab_size_)};
  }
  std::optional<ops::LoraDropout> dropout(const nn::ForwardContext& context) const override {
    return adapters_.dropout(context, group_);
  }
  std::optional<ops::DoraMagnitude> dora(const ops::FrozenMatrix& table) const override {
    return magnitudes_.of(table);
  }

 private:
  const LoraAdapters& adapters_;
  std::uint32_t group_;
  LoraAdapters::Module module_;
  DoraMagnitudes magnitudes_;
  std::int64_t vocab_size_;
};

// A head whose table is the store's.
class TrainedHead : public nn::FrozenHead {
 public:
  TrainedHead(const nn::HeadSpec& spec, const AdapterStore& store, LoraAdapters::Table table)
      : nn::FrozenHead(spec, table.weight, store.policy()), store_(store), own_(std::move(table)) {}

  ops::CrossEntropy loss(const at::Tensor& hidden, const at::Tensor& labels, const nn::UnitLoan& weights,
                         double loss_scale, const nn::ForwardContext& context,
                         bool hidden_gradient) const override {
    *own_.reached = true;
    return nn::FrozenHead::loss(hidden, labels, weights, loss_scale, context, hidden_gradient);
  }

 protected:
  ops::FrozenMatrix table(const nn::UnitLoan& /*weights*/) const override {
    return ops::frozen_matrix(store_.compute(own_.segment));
  }
  at::Tensor table_gradient() const override { return store_.gradient(own_.segment); }

 private:
  const AdapterStore& store_;
  LoraAdapters::Table own_;
};

}  // namespace

std::unique_ptr<nn::Embedding> LoraFactory::embedding(const nn::EmbeddingSpec& spec,
                                                      const nn::MatrixPlace& table) {
  if (auto own = adapters_.declare_table(spec.name, table, spec.tied_head))
    return std::make_unique<TrainedEmbedding>(spec, adapters_.store(), std::move(*own));
  const auto modules = adapters_.declare({{spec.name, table.rows}}, table, LoraAdapters::Kind::kEmbedding);
  if (modules.empty()) return frozen_.embedding(spec, table);
  const LoraConfig& config = adapters_.config();
  if (config.ensure_weight_tying && !spec.tied_head.empty() && config.from_file) {
    throw Error("[ensure_weight_tying] an adapter that the head shares is not built for '" + spec.name +
                "'; set ensure_weight_tying to false or leave '" + spec.name + "' out of target_modules");
  }
  return std::make_unique<LoraEmbedding>(spec, table, adapters_, modules.front());
}

std::unique_ptr<nn::Head> LoraFactory::head(const nn::HeadSpec& spec, const nn::MatrixPlace& table) {
  if (auto shared = adapters_.shared_table(spec.name))
    return std::make_unique<TrainedHead>(spec, adapters_.store(), std::move(*shared));
  if (auto own = adapters_.declare_table(spec.name, table))
    return std::make_unique<TrainedHead>(spec, adapters_.store(), std::move(*own));
  const std::uint32_t group = adapters_.groups();
  const auto modules = adapters_.declare({{spec.name, spec.vocab_size}}, table, LoraAdapters::Kind::kHead);
  if (modules.empty()) return frozen_.head(spec, table);
  return std::make_unique<LoraHead>(spec, table, adapters_, group, modules.front());
}

}  // namespace lorikeet::peft
