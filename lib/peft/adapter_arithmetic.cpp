#include "peft/adapter_arithmetic.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"
#include "peft/adapter_config.h"

namespace lorikeet::peft {
namespace {

void require_linear(const AdapterContents& adapter) {
  if (!adapter.config.use_dora) return;
  throw Error(
      "[adapters] expected plain LoRA, got an adapter with use_dora: DoRA's change of a weight isn't linear "
      "in "
      "B A, so that it can't be scaled, averaged or shrunk by its factors; merge it into the base instead");
}

void require_factor(double factor, const char* what) {
  if (std::isfinite(factor) && factor != 0) return;
  throw Error(std::string("[adapters] expected ") + what + " that is finite and not 0, got " +
              format_number("%g", factor));
}

// Plain LoRA's alpha for a scale.
double alpha_of(const LowRankUpdate& update) { return update.scale * static_cast<double>(update.rank()); }

// The names that choose the modules of all adapters, and no others, in any base: the union of their targets
// where all are names, else the modules' whole names.
std::vector<std::string> targets_of(const std::vector<AdapterContents>& adapters,
                                    const std::vector<std::string>& modules) {
  std::set<std::string> names;
  for (const AdapterContents& adapter : adapters) {
    const LoraConfig& config = adapter.config;
    if (!config.targets_by_names()) return modules;
    names.insert(config.target_modules.begin(), config.target_modules.end());
  }
  return {names.begin(), names.end()};
}

void require_same_shape(const std::string& name, const AdapterModule& module, const AdapterModule& other) {
  const LowRankUpdate &x = module.update, &y = other.update;
  const auto experts = [](const AdapterModule& m) { return m.slice ? m.slice->count : 0; };
  if (x.in_features() == y.in_features() && x.out_features() == y.out_features() &&
      module.is_embedding == other.is_embedding && experts(module) == experts(other))
    return;
  const auto text = [](const LowRankUpdate& update) {
    return "[" + std::to_string(update.out_features()) + ", " + std::to_string(update.in_features()) + "]";
  };
  throw Error("[adapters] expected adapters of one base model, got module '" + escape_control(name) +
              "' with a weight of shape " + text(x) + " in one and " + text(y) + " in another");
}

std::vector<std::string> target_parameters_of(const std::vector<AdapterContents>& adapters) {
  std::set<std::string> names;
  for (const AdapterContents& adapter : adapters)
    names.insert(adapter.config.target_parameters.begin(), adapter.config.target_parameters.end());
  return {names.begin(), names.end()};
}

// No file has adapters on modules of experts and on the parameters that hold their weights.
void require_one_form_of_experts(const AdapterContents& sum) {
  for (const std::string& parameter : sum.parameters()) {
    const std::string experts = parameter.substr(0, parameter.rfind('.') + 1);
    for (const std::string& name : sum.names()) {
      if (!name.starts_with(experts)) continue;
      throw Error("[adapters] expected adapters on experts of one form, got some on '" +
                  escape_control(name) + "' and on '" + escape_control(parameter) +
                  "', which holds its weight");
    }
  }
}

// Adds `weight` times the copies of `adapter` to those of `sum`, which are the first adapter's where they are
// new.
void add_saved(AdapterContents& sum, const AdapterContents& adapter, double weight) {
  for (const auto& [name, value] : adapter.saved) {
    const auto place = sum.saved.find(name);
    if (place == sum.saved.end()) {
      sum.saved[name] = value * weight;
    } else {
      if (place->second.sizes() != value.sizes()) {
        throw Error("[adapters] expected adapters of one base model, got '" + escape_control(name) +
                    "' of modules_to_save in two shapes");
      }
      place->second.add_(value, weight);
    }
  }
}

void add_base_tables(AdapterContents& sum, const AdapterContents& adapter) {
  for (const auto& [name, table] : adapter.base_tables) {
    const auto [place, is_new] = sum.base_tables.emplace(name, table);
    const at::Tensor& own = place->second;
    const at::ScalarType wide = at::promote_types(own.scalar_type(), table.scalar_type());
    // Either may have been rounded to 16 bits.
    if (is_new || (own.sizes() == table.sizes() &&
                   at::allclose(own.to(wide), table.to(wide), /*rtol=*/1e-2, /*atol=*/1e-6)))
      continue;
    throw Error(
        "[adapters] expected adapters of one base model, got files with different tables of the base "
        "for '" +
        escape_control(name) + "'");
  }
}

// What stands before a layer's number: "model.layers", "model.language_model.layers". Empty for modules
// outside the layers.
std::string stack_of(const std::string& module) {
  std::string stack;
  for (const std::string& part : split(module, '.')) {
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    if (number) return stack;
    stack += (stack.empty() ? "" : ".") + part;
  }
  return "";
}

// Versions of transformers name the layers of one multimodal model differently. Each name of a sum would be
// half of a module, and no tool finds both.
void require_one_stack(const std::vector<AdapterContents>& adapters) {
  std::string known;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    for (const auto& [name, module] : adapters[i].modules) {
      const std::string stack = stack_of(name);
      if (stack.empty() || stack == known) continue;
      if (known.empty()) {
        known = stack;
        continue;
      }
      throw Error(
          "[adapters] expected adapters whose layers have the same names, got '" + escape_control(known) +
          "' and, in adapter " + std::to_string(i + 1) + ", '" + escape_control(stack) +
          "': they are of two base models, or of two versions of transformers, which name the parts of "
          "multimodal models differently; save them anew with one version");
    }
  }
}

// A copy is base + change: sums of copies are base + sums of changes where the weights add up to 1.
void require_averages_copies(const std::vector<AdapterContents>& adapters,
                             const std::vector<double>& weights) {
  std::set<std::string> names;
  for (const AdapterContents& adapter : adapters) {
    for (const auto& [name, value] : adapter.saved) names.insert(name);
  }
  if (names.empty()) return;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    for (const std::string& name : names) {
      if (adapters[i].saved.contains(name)) continue;
      throw Error("[adapters] expected all adapters with '" + escape_control(name) +
                  "' of modules_to_save or none, got adapter " + std::to_string(i + 1) +
                  " without it: it stands for the base's weight there, which is not known here; merge the "
                  "adapters into the base instead");
    }
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  constexpr double kRounding = 1e-6;  // of weights that were typed in
  if (std::abs(sum - 1) <= kRounding) return;
  throw Error(
      "[adapters] expected weights that add up to 1 for adapters with modules_to_save, got a sum of " +
      format_number("%g", sum) + ": a copy holds the base's weight too, whose share would change with it");
}

std::int64_t new_rank(const at::Tensor& singular_values, const LowRankUpdate& update,
                      std::optional<std::int64_t> rank, std::optional<double> keep) {
  std::int64_t least = update.rank();
  if (rank) least = std::min(least, *rank);
  if (keep) least = std::min(least, rank_for_share(singular_values, *keep));
  return least;
}

// Of experts' parameters the largest of their experts' ranks: a file has one rank for all.
std::map<std::string, std::int64_t> new_ranks_of_parameters(const AdapterContents& adapter,
                                                            std::optional<std::int64_t> rank,
                                                            std::optional<double> keep) {
  std::map<std::string, std::int64_t> ranks;
  for (const auto& [name, module] : adapter.modules) {
    if (!module.slice) continue;
    std::int64_t& largest = ranks[module.slice->parameter];
    largest = std::max(largest, new_rank(singular_values(module.update), module.update, rank, keep));
  }
  return ranks;
}

}  // namespace

double RankLoss::lost_share() const { return norm > 0 ? lost_norm / norm : 0; }

RankLoss total_loss(const std::vector<RankLoss>& modules) {
  RankLoss total{.module = "total"};
  for (const RankLoss& one : modules) {
    total.rank_before = std::max(total.rank_before, one.rank_before);
    total.rank_after = std::max(total.rank_after, one.rank_after);
    total.norm = std::hypot(total.norm, one.norm);
    total.lost_norm = std::hypot(total.lost_norm, one.lost_norm);
  }
  return total;
}

AdapterContents scaled(const AdapterContents& adapter, double factor) {
  require_linear(adapter);
  require_factor(factor, "a factor");
  if (!adapter.saved.empty() && factor != 1) {
    throw Error(
        "[adapters] expected an adapter without modules_to_save, got a copy of '" +
        escape_control(adapter.saved.begin()->first) +
        "': it holds the base's weight too, so that its change can't be scaled without the base; merge the "
        "adapter into the base instead");
  }
  AdapterContents result = adapter;
  for (auto& [name, module] : result.modules) {
    module.alpha *= std::abs(factor);
    if (!(module.alpha > 0 && module.alpha <= kMostAlpha)) {
      throw Error("[adapters] expected a factor that leaves every alpha above 0 and at most " +
                  format_number("%g", kMostAlpha) + ", got " + format_number("%g", factor) +
                  ", which makes that of '" + escape_control(name) + "' " +
                  format_number("%g", module.alpha));
    }
    module.update.scale *= std::abs(factor);
    if (factor < 0) module.update.b = -module.update.b;
  }
  return result;
}

std::vector<AbsentModule> absent_modules(const std::vector<AdapterContents>& adapters) {
  std::map<std::string, std::vector<std::size_t>> lacking;
  for (const AdapterContents& adapter : adapters) {
    for (const auto& [name, module] : adapter.modules) lacking[name];
  }
  std::vector<AbsentModule> absent;
  for (auto& [name, indices] : lacking) {
    for (std::size_t i = 0; i < adapters.size(); ++i) {
      if (!adapters[i].modules.contains(name)) indices.push_back(i);
    }
    if (!indices.empty()) absent.push_back({name, indices});
  }
  return absent;
}

AdapterContents weighted_sum(const std::vector<AdapterContents>& adapters,
                             const std::vector<double>& weights) {
  if (adapters.empty() || adapters.size() != weights.size()) {
    throw Error("[adapters] expected a weight for each adapter, got " + std::to_string(weights.size()) +
                " for " + std::to_string(adapters.size()));
  }
  require_averages_copies(adapters, weights);
  require_one_stack(adapters);
  struct Terms {
    const AdapterModule* first = nullptr;
    std::vector<LowRankUpdate> updates;
    std::vector<double> weights;
  };
  std::map<std::string, Terms> terms;
  AdapterContents sum{
      .config = adapters[0].config, .base_model = adapters[0].base_model, .dtype = adapters[0].dtype};
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    require_linear(adapters[i]);
    require_factor(weights[i], "a weight");
    sum.dtype = widest(sum.dtype, adapters[i].dtype);
    for (const auto& [name, module] : adapters[i].modules) {
      Terms& term = terms[name];
      if (term.first == nullptr) term.first = &module;
      require_same_shape(name, *term.first, module);
      term.updates.push_back(module.update);
      term.weights.push_back(weights[i]);
    }
    add_saved(sum, adapters[i], weights[i]);
    add_base_tables(sum, adapters[i]);
    // One table under two names stays one only where it is one in all.
    sum.config.ensure_weight_tying = sum.config.ensure_weight_tying && adapters[i].config.ensure_weight_tying;
  }
  for (const auto& [name, term] : terms) {
    LowRankUpdate update = weighted_sum(term.updates, term.weights);
    const double alpha = alpha_of(update);
    sum.modules[name] = {.alpha = alpha,
                         .update = std::move(update),
                         .magnitude = {},
                         .is_embedding = term.first->is_embedding,
                         .slice = term.first->slice};
  }
  require_one_form_of_experts(sum);
  sum.config.use_rslora = false;
  sum.config.target_modules = targets_of(adapters, sum.names());
  sum.config.target_parameters = target_parameters_of(adapters);
  sum.config.exclude_modules.clear();
  sum.config.layers_to_transform.clear();
  sum.config.layers_pattern.clear();
  return sum;
}

Shrunk shrunk(const AdapterContents& adapter, std::optional<std::int64_t> rank, std::optional<double> keep) {
  require_linear(adapter);
  if (rank && *rank < 1) throw Error("[adapters] expected a rank from 1 on, got " + std::to_string(*rank));
  if (keep && !(*keep > 0 && *keep <= 1)) {
    throw Error("[adapters] expected a share to keep above 0 and at most 1, got " +
                format_number("%g", *keep));
  }
  if (!rank && !keep) throw Error("[adapters] expected a rank or a share to keep, got neither");
  Shrunk result{.adapter = adapter, .modules = {}};
  result.adapter.config.use_rslora = false;
  const std::map<std::string, std::int64_t> of_parameters = new_ranks_of_parameters(adapter, rank, keep);
  for (auto& [name, module] : result.adapter.modules) {
    const UpdateSvd parts = svd(module.update);
    const std::int64_t before = module.update.rank();
    const std::int64_t after = module.slice ? of_parameters.at(module.slice->parameter)
                                            : new_rank(parts.s, module.update, rank, keep);
    RankLoss loss{.module = name, .rank_before = before, .rank_after = after};
    loss.norm = parts.s.norm().item<double>();
    const std::int64_t values = parts.s.size(0);
    if (after < before) {
      const std::int64_t kept = std::min(after, values);
      loss.rank_after = kept;
      loss.lost_norm = parts.s.narrow(0, kept, values - kept).norm().item<double>();
      module.update = truncated(parts, kept, module.update.scale);
    }
    module.alpha = alpha_of(module.update);
    result.modules.push_back(loss);
  }
  return result;
}

AdapterContents flattened(const AdapterContents& adapter, std::optional<std::int64_t> rank) {
  std::int64_t largest = 0;
  std::map<double, std::size_t> modules_with_scale;
  for (const auto& [name, module] : adapter.modules) {
    largest = std::max(largest, module.update.rank());
    ++modules_with_scale[module.update.scale];
  }
  if (rank.value_or(largest) < largest) {
    throw Error("[adapters] expected a rank of at least " + std::to_string(largest) +
                ", which a module of the adapter has, got " + std::to_string(*rank) +
                "; lower ranks by `lorikeet adapters shrink` first");
  }
  const std::int64_t common_rank = rank.value_or(largest);
  const double common_scale =
      std::max_element(modules_with_scale.begin(), modules_with_scale.end(),
                       [](const auto& x, const auto& y) { return x.second < y.second; })
          ->first;
  AdapterContents result = adapter;
  result.config.use_rslora = false;
  for (auto& [name, module] : result.modules) {
    LowRankUpdate& update = module.update;
    const std::int64_t zeros = common_rank - update.rank();
    if (update.scale != common_scale) update.b = update.b * (update.scale / common_scale);
    update.a = at::constant_pad_nd(update.a, {0, 0, 0, zeros});
    update.b = at::constant_pad_nd(update.b, {0, zeros});
    update.scale = common_scale;
    module.alpha = alpha_of(update);
  }
  return result;
}

}  // namespace lorikeet::peft
