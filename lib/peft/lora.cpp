#include "peft/lora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/philox.h"
#include "base/strings.h"
#include "nn/batch.h"
#include "ops/dtype.h"
#include "ops/lora/dora.h"
#include "peft/base_factors.h"

namespace lorikeet::peft {
std::vector<std::size_t> LoraAdapters::Module::segments() const {
  std::vector<std::size_t> all{a, b};
  for (const auto& more : {magnitude, start_a, start_b}) {
    if (more) all.push_back(*more);
  }
  return all;
}

std::vector<LoraAdapters::Module> LoraAdapters::declare(const std::vector<nn::Module>& modules,
                                                        const nn::MatrixPlace& weight, Kind kind,
                                                        bool by_name_only) {
  const bool is_embedding = kind == Kind::kEmbedding;
  const bool starts_from_base = config_.starts_from_base && !is_embedding;
  const char* const a_name = is_embedding ? ".lora_embedding_B" : ".lora_A.weight";
  const char* const b_name = is_embedding ? ".lora_embedding_A" : ".lora_B.weight";
  std::vector<Module> added;
  std::vector<AdapterSegment> as, bs, others;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const nn::Module& module = modules[i];
    seen_.push_back(module.name);
    if (!rules_.matches(module.name, by_name_only || kind != Kind::kLinear)) continue;
    if (kind == Kind::kLinear && by_name_only && rules_.leaves_out(module.name)) continue;
    const std::int64_t rank = rules_.rank(module.name);
    as.push_back({.name = module.name + a_name, .shape = {rank, weight.cols}, .frozen = config_.freeze_a});
    bs.push_back({.name = module.name + b_name, .shape = {module.out_features, rank}, .order = module.order});
    if (config_.use_dora) {
      others.push_back({.name = module.name + ".lora_magnitude_vector",
                        .shape = {is_embedding ? weight.cols : module.out_features},
                        .order = is_embedding ? nn::RowOrder{} : module.order});
    }
    if (starts_from_base) {
      const std::int64_t most = std::min(module.out_features, weight.cols);
      if (rank > most) {
        throw Error("[lora.init] an adapter that starts from the base has a rank of at most " +
                    std::to_string(most) + " for '" + module.name + "', got " + std::to_string(rank) +
                    "; set lora.rank or lora.rank_pattern, or lora.init=kaiming");
      }
      others.push_back({.name = module.name + ".start_A", .shape = {rank, weight.cols}, .frozen = true});
      others.push_back({.name = module.name + ".start_B",
                        .shape = {module.out_features, rank},
                        .order = module.order,
                        .frozen = true});
    }
    added.push_back({.name = module.name,
                     .a = 0,
                     .b = 0,
                     .scale = rules_.scale(module.name),
                     .weight = {weight.unit, weight.segment + i, module.out_features, weight.cols},
                     .kind = kind,
                     .parts = {module}});
  }
  if (added.empty()) return added;
  // All A of a group lie next to each other: together they are one [sum of ranks, in] matrix.
  const std::size_t count = added.size();
  as.insert(as.end(), bs.begin(), bs.end());
  as.insert(as.end(), others.begin(), others.end());
  const std::size_t first = store_.declare(std::move(as));
  std::size_t other = first + 2 * count;
  for (std::size_t i = 0; i < count; ++i) {
    added[i].a = first + i;
    added[i].b = first + count + i;
    if (config_.use_dora) added[i].magnitude = other++;
    if (!starts_from_base) continue;
    added[i].start_a = other++;
    added[i].start_b = other++;
  }
  modules_.insert(modules_.end(), added.begin(), added.end());
  ++groups_;
  return added;
}

std::optional<LoraAdapters::Module> LoraAdapters::declare_slice(const nn::GroupSpec& group,
                                                                const nn::MatrixPlace& weight) {
  if (!group.slice) return std::nullopt;
  const nn::ExpertSlice& slice = *group.slice;
  if (slice.expert == 0) seen_parameters_.push_back(slice.parameter);
  if (!rules_.targets(slice.parameter)) return std::nullopt;
  for (const nn::Module& module : group.modules) {
    if (slice.only) break;
    seen_.push_back(module.name);
    if (rules_.matches(module.name, /*by_name_only=*/true) && !rules_.leaves_out(module.name)) {
      throw Error("[lora.target_parameters] '" + slice.parameter + "' holds the weight of '" + module.name +
                  "', which target_modules names too; leave out one of the two (`shared_expert." +
                  last_part(module.name) + "` is the name of a shared expert's alone)");
    }
  }
  const std::int64_t rank = rules_.rank(slice.parameter);
  const std::string name = slice.name();
  const std::size_t first = store_.declare(
      {{.name = name + ".lora_A.weight", .shape = {rank, weight.cols}, .frozen = config_.freeze_a},
       {.name = name + ".lora_B.weight", .shape = {weight.rows, rank}, .order = slice.order}});
  modules_.push_back({.name = name,
                      .a = first,
                      .b = first + 1,
                      .scale = rules_.scale(slice.parameter),
                      .weight = weight,
                      .parts = group.modules,
                      .slice = slice});
  ++groups_;
  return modules_.back();
}

std::optional<LoraAdapters::Table> LoraAdapters::declare_table(const std::string& module,
                                                               const nn::MatrixPlace& weight,
                                                               const std::string& tied_head) {
  seen_tables_.push_back(module);
  const bool tied = config_.ensure_weight_tying && !tied_head.empty();
  if (tied) seen_tables_.push_back(tied_head);
  if (!rules_.saves(module) && !(tied && rules_.saves(tied_head))) return std::nullopt;
  seen_.push_back(module);  // which may be a target too: it is trained whole then, as in PEFT
  const std::int64_t rows = std::max(config_.table_rows, weight.rows);
  tables_.push_back({.name = module,
                     .segment = store_.declare({{.name = module + ".weight", .shape = {rows, weight.cols}}}),
                     .weight = weight,
                     .tied_head = tied ? tied_head : ""});
  return tables_.back();
}

std::optional<LoraAdapters::Table> LoraAdapters::shared_table(const std::string& head) const {
  for (const Table& table : tables_) {
    if (table.tied_head == head) return table;
  }
  return std::nullopt;
}

void LoraAdapters::draw(const Module& module, LoraInit init) {
  const AdapterSegment& segment = store_.segment(module.a);
  PhiloxStream stream(seed_, segment.name);
  std::vector<float> values(static_cast<std::size_t>(segment.size()));
  if (module.is_embedding()) {
    for (float& v : values) v = stream.normal();  // whatever init says, as PEFT
  } else if (init == LoraInit::kKaiming) {
    // torch.nn.init.kaiming_uniform_(a=sqrt(5)): uniform in +-1/sqrt(fan_in).
    const float bound = 1.0F / std::sqrt(static_cast<float>(segment.shape[1]));
    for (float& v : values) v = (2.0F * stream.uniform() - 1.0F) * bound;
  } else {
    const float deviation = 1.0F / static_cast<float>(segment.shape[0]);
    for (float& v : values) v = stream.normal() * deviation;
  }
  store_.value(module.a).copy_(at::tensor(values).view(segment.shape));
}

void LoraAdapters::start_from_base(const Module& module, const nn::UnitLoan& weights, LoraInit init,
                                   std::optional<std::int64_t> iterations) {
  const std::int64_t rank = store_.segment(module.a).shape[0];
  const at::Tensor weight = module.weight.of(weights).dense(ops::to_torch(store_.policy().statistics));
  const BaseFactors start = init == LoraInit::kOlora ? olora_factors(weight, rank)
                                                     : pissa_factors(weight, rank, module.scale, iterations,
                                                                     PhiloxStream(seed_, module.name));
  store_.value(module.a).copy_(start.a);
  store_.value(module.b).copy_(start.b);
  store_.value(*module.start_a).copy_(start.a);
  store_.value(*module.start_b).copy_(start.b.neg());
}

void LoraAdapters::copy_table(const Table& table, const nn::WeightStore& base) {
  base.expect({table.weight.unit});
  const nn::UnitLoan loan = base.borrow(*table.weight.unit);
  const at::Tensor rows = table.weight.of(loan).dense(ops::to_torch(store_.policy().statistics));
  at::Tensor value = store_.value(table.segment);
  const std::int64_t known = table.weight.rows, added = value.size(0) - known;
  value.narrow(0, 0, known).copy_(rows);
  if (added == 0) return;
  // z (E - mean) / sqrt(rows) with z from a normal distribution has the covariance of E's rows.
  constexpr double kVariance = 1e-9;
  PhiloxStream stream(seed_, table.name + ".added_rows");
  std::vector<float> drawn(static_cast<std::size_t>(added * known));
  for (float& z : drawn) z = stream.normal();
  const at::Tensor z = at::tensor(drawn).view({added, known}).to(rows.options());
  const at::Tensor mean = rows.mean(0, /*keepdim=*/true);
  const at::Tensor noise = at::mm(z, rows - mean).mul_(std::sqrt(kVariance / static_cast<double>(known)));
  value.narrow(0, known, added).copy_(noise.add_(mean));
}

template <typename F>
void LoraAdapters::for_each_weight(const nn::WeightStore& base, F f) {
  std::vector<const nn::WeightUnit*> order;
  for (const Module& module : modules_) {
    if (order.empty() || order.back() != module.weight.unit) order.push_back(module.weight.unit);
  }
  base.expect(order);
  auto module = modules_.begin();
  for (const nn::WeightUnit* unit : order) {
    const nn::UnitLoan weights = base.borrow(*unit);
    for (; module != modules_.end() && module->weight.unit == unit; ++module) f(*module, weights);
  }
}

void LoraAdapters::initialize(LoraInit init, const nn::WeightStore& base,
                              std::optional<std::int64_t> iterations) {
  const at::NoGradGuard no_grad;
  store_.all_values().zero_();
  for (const Table& table : tables_) copy_table(table, base);
  if (config_.starts_from_base) {
    for_each_weight(base, [&](const Module& module, const nn::UnitLoan& weights) {
      if (module.start_a) {
        start_from_base(module, weights, init, iterations);
      } else {
        draw(module, init);
      }
    });
  } else {
    for (const Module& module : modules_) draw(module, init);
  }
  store_.refresh_compute();
  if (!config_.use_dora) return;
  for_each_weight(base, [&](const Module& module, const nn::UnitLoan& weights) {
    store_.value(*module.magnitude).copy_(norms(module, module.weight.of(weights)));
  });
  store_.refresh_compute();
}

LoraAdapters::Factors LoraAdapters::factors(const Module& module,
                                            const at::Tensor& (AdapterStore::*copy)(std::size_t)
                                                const) const {
  const auto tensor = [&](std::size_t segment) -> const at::Tensor& { return (store_.*copy)(segment); };
  if (!module.start_a) return {tensor(module.a), tensor(module.b)};
  return {at::cat({tensor(module.a), tensor(*module.start_a)}),
          at::cat({tensor(module.b), tensor(*module.start_b)}, 1)};
}

ops::LoraProjection LoraAdapters::projection(const Module& module, std::int64_t begin,
                                             std::int64_t end) const {
  Factors factors = computed(module);
  return {begin,
          end,
          std::move(factors.a),
          std::move(factors.b),
          store_.gradient(module.a),
          store_.gradient(module.b),
          module.scale,
          module.reached.get()};
}

std::optional<ops::LoraDropout> LoraAdapters::dropout(const nn::ForwardContext& context,
                                                      std::uint32_t group) const {
  if (!context.training || config_.dropout == 0) return std::nullopt;
  return ops::LoraDropout{config_.dropout,           seed_, context.step, group, context.batch.sample_ids,
                          context.batch.position_ids};
}

at::Tensor LoraAdapters::norms(const Module& module, const ops::FrozenMatrix& weight,
                               const at::Tensor& squares) const {
  const Factors factors = computed(module);
  const ops::LoraProjection update{.out_begin = 0,
                                   .out_end = module.weight.rows,
                                   .a = factors.a,
                                   .b = factors.b,
                                   .grad_a = {},
                                   .grad_b = {},
                                   .scale = module.scale};
  if (module.is_embedding()) return ops::dora_column_norms(weight, update);
  return ops::dora_norms(weight, {update}, squares);
}

at::Tensor LoraAdapters::squares(const Module& module, const ops::FrozenMatrix& weight) const {
  return module.is_embedding() ? at::Tensor() : ops::row_squares(weight, store_.value(module.a));
}

std::vector<std::string> LoraAdapters::narrower_than_rank() const {
  std::vector<std::string> names;
  for (const Module& module : modules_) {
    const std::vector<std::int64_t>&a = store_.segment(module.a).shape, &b = store_.segment(module.b).shape;
    if (a[0] > std::min(a[1], b[0])) names.push_back(module.name);
  }
  return names;
}

bool LoraAdapters::shares_last_parts() const {
  std::set<std::string_view> adapted, parts;
  for (const Module& module : modules_) {
    if (module.slice) continue;
    adapted.insert(module.name);
    parts.insert(std::string_view(module.name).substr(module.name.rfind('.') + 1));
  }
  return std::any_of(seen_.begin(), seen_.end(), [&](const std::string& name) {
    return !adapted.contains(name) && parts.contains(std::string_view(name).substr(name.rfind('.') + 1));
  });
}

void LoraAdapters::require_matches() const {
  std::vector<std::string> adapted;
  adapted.reserve(modules_.size());
  for (const Module& module : modules_) adapted.push_back(module.target());
  rules_.require_used(
      {.modules = seen_, .parameters = seen_parameters_, .adapted = adapted, .tables = seen_tables_});
  for (const Table& table : tables_) {
    const std::int64_t rows = store_.segment(table.segment).shape[0];
    if (rows > table.weight.rows && tables_.size() == 1 && table.tied_head.empty())
      throw Error("[lora.modules_to_save] '" + table.name + "' has " + std::to_string(rows) +
                  " rows, the base " + std::to_string(table.weight.rows) +
                  ": with added tokens both the embedding and the head have to be trained whole (" +
                  join(seen_tables_, ", ") + ")");
  }
}

}  // namespace lorikeet::peft
