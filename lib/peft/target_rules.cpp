#include "peft/target_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/strings.h"
#include "peft/expert_parameters.h"

namespace lorikeet::peft {
namespace {

// `pattern`, compiled as the part `before` ... `after` of a whole.
text::Regex compile_in(const char* before, const std::string& pattern, const char* after,
                       const char* setting) {
  const std::string where = std::string("lora.") + setting;
  const text::Regex alone(pattern, where);  // its own errors, and no parenthesis that closes ours
  return {before + ("(?:" + pattern + ")") + after, where};
}

// The names that mean a module: its whole name, and what is behind each of its dots.
std::vector<std::string_view> names_of(std::string_view module) {
  std::vector<std::string_view> names{module};
  for (std::size_t dot = module.find('.'); dot != std::string_view::npos; dot = module.find('.', dot + 1))
    names.push_back(module.substr(dot + 1));
  return names;
}

bool is_named(const std::string& module, const std::string& name) {
  const auto names = names_of(module);
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What `shortened` makes of names, sorted, each once.
template <typename F>
std::vector<std::string> distinct(const std::vector<std::string>& names, F shortened) {
  std::set<std::string> found;
  for (const std::string& name : names) found.insert(shortened(name));
  return {found.begin(), found.end()};
}

std::vector<std::string> last_parts(const std::vector<std::string>& modules) {
  return distinct(modules, [](const std::string& module) { return last_part(module); });
}

[[noreturn]] void fail_unused(const char* setting, const std::string& entry, const char* what,
                              const std::vector<std::string>& modules) {
  const std::vector<std::string> known = last_parts(modules);
  throw Error(std::string("[lora.") + setting + "] '" + escape_control(entry) + "' matches no " + what +
              " of this model" + did_you_mean(entry, known) + "; it has " + join(known, ", "));
}

bool any(const std::vector<std::string>& modules, const auto& matches) {
  return std::any_of(modules.begin(), modules.end(), matches);
}

// What an adapter file names, the user's settings don't.
[[noreturn]] void fail_other_base(const std::string& name, const std::vector<std::string>& modules) {
  throw Error("[adapter] its target_modules name '" + escape_control(name) +
              "', which matches no module of this model: the adapter is for another base; this one has " +
              join(last_parts(modules), ", "));
}

void require_names_used(const std::set<std::string, std::less<>>& names, const char* setting,
                        const std::vector<std::string>& modules, bool from_file = false) {
  std::set<std::string_view> known;
  for (const std::string& module : modules) {
    for (const std::string_view name : names_of(module)) known.insert(name);
  }
  for (const std::string& name : names) {
    if (known.contains(name)) continue;
    if (from_file) fail_other_base(name, modules);
    fail_unused(setting, name, "module", modules);
  }
}

}  // namespace

TargetRules::Targets TargetRules::compile_names(const std::vector<std::string>& names, const char* setting) {
  Targets compiled;
  if (is_pattern(names)) {
    compiled.pattern.push_back(compile_in("\\A", names[0], "\\z", setting));
  } else {
    compiled.names.insert(names.begin(), names.end());
  }
  return compiled;
}

template <typename T>
std::vector<TargetRules::Rule<T>> TargetRules::compile(const LoraConfig::Pattern<T>& pattern,
                                                       const char* setting) {
  std::vector<Rule<T>> rules;
  for (const auto& [regex, value] : pattern)
    rules.push_back({regex, compile_in("\\A(?:.*\\.)?", regex, "\\z", setting), value});
  return rules;
}

TargetRules::TargetRules(const LoraConfig& config)
    : config_(config),
      targets_(compile_names(config.target_modules, "target_modules")),
      excluded_(compile_names(config.exclude_modules, "exclude_modules")),
      ranks_(compile(config.rank_pattern, "rank_pattern")),
      alphas_(compile(config.alpha_pattern, "alpha_pattern")) {
  // What is found begins at \K: the layer's number.
  for (const std::string& pattern : config.layers_pattern)
    layers_.push_back(compile_in("\\A(?:.*?\\.)?", pattern, "\\.\\K[0-9]+(?=\\.)", "layers_pattern"));
  if (layers_.empty()) layers_.emplace_back("\\A.*?\\.[^.]*\\.\\K[0-9]+(?=\\.)", "lora.layers_to_transform");
}

bool TargetRules::Targets::match(const std::string& module) const {
  if (!pattern.empty()) return pattern[0].search(module, 0).has_value();
  const auto own = names_of(module);
  return std::any_of(own.begin(), own.end(), [&](std::string_view name) { return names.contains(name); });
}

std::optional<std::int64_t> TargetRules::layer(const std::string& module) const {
  for (const text::Regex& pattern : layers_) {
    const auto number = pattern.search(module, 0);
    if (!number) continue;
    std::int64_t layer = 0;
    const auto read = std::from_chars(module.data() + number->begin, module.data() + number->end, layer);
    return read.ec == std::errc() ? std::optional(layer) : std::nullopt;
  }
  return std::nullopt;
}

bool TargetRules::in_layers(const std::string& module) const {
  const std::vector<std::int64_t>& wanted = config_.layers_to_transform;
  if (wanted.empty()) return true;
  const auto own = layer(module);
  return own && std::find(wanted.begin(), wanted.end(), *own) != wanted.end();
}

template <typename Matches>
bool TargetRules::by_any_name(const std::string& module, const Matches& matches) const {
  if (!config_.from_file) return matches(module);
  return any(config_.checkpoint_names.modules_in_files(module), matches);
}

bool TargetRules::matches(const std::string& module, bool by_name_only) const {
  if (by_any_name(module, [&](const std::string& m) { return excluded_.match(m); })) return false;
  const bool targeted = config_.targets_all_linear()
                            ? !by_name_only
                            : by_any_name(module, [&](const std::string& m) { return targets_.match(m); });
  return targeted && in_layers(module);
}

bool TargetRules::targets(const std::string& parameter) const {
  return any(config_.target_parameters, [&](const std::string& name) {
    return by_any_name(parameter, [&](const std::string& p) { return is_named(p, name); });
  });
}

bool TargetRules::leaves_out(const std::string& expert_module) const {
  const auto& in_file = config_.modules_in_file;
  if (!config_.from_file || in_file.empty()) return false;
  return !by_any_name(expert_module, [&](const std::string& module) {
    // "model.layers.0.mlp.experts.3.down_proj" -> "model.layers.0.mlp.experts."
    const std::size_t end = module.rfind('.'), number = module.rfind('.', end - 1);
    if (module[number + 1] < '0' || module[number + 1] > '9') return true;  // a shared expert's module
    const std::string experts = module.substr(0, number + 1);
    const auto first = in_file.lower_bound(experts);
    return first != in_file.end() && first->starts_with(experts);
  });
}

bool TargetRules::saves(const std::string& module) const {
  return config_.trains_tables || any(config_.modules_to_save, [&](const std::string& name) {
           return by_any_name(module, [&](const std::string& m) { return is_named(m, name); });
         });
}

template <typename T>
T TargetRules::value_of(const std::string& module, const std::vector<Rule<T>>& rules, T otherwise) const {
  for (const auto& rule : rules) {
    if (by_any_name(module, [&](const std::string& m) { return rule.regex.search(m, 0).has_value(); }))
      return rule.value;
  }
  return otherwise;
}

std::int64_t TargetRules::rank(const std::string& module) const {
  return value_of(module, ranks_, config_.rank);
}

double TargetRules::alpha(const std::string& module) const {
  return value_of(module, alphas_, config_.alpha);
}

double TargetRules::scale(const std::string& module) const {
  const auto r = static_cast<double>(rank(module));
  return alpha(module) / (config_.use_rslora ? std::sqrt(r) : r);
}

void TargetRules::require_parameters_used(const std::vector<std::string>& parameters) const {
  for (const std::string& name : config_.target_parameters) {
    const auto is_called = [&](const std::string& p) { return is_named(p, name); };
    if (any(parameters, [&](const std::string& parameter) { return by_any_name(parameter, is_called); }))
      continue;
    const std::vector<std::string> known = distinct(parameters, within_layer);
    throw Error(
        (config_.from_file ? "[adapter] its target_parameters name '" : "[lora.target_parameters] '") +
        escape_control(name) + "'" + (config_.from_file ? ", which" : "") +
        " matches no parameter of this model's experts" + did_you_mean(name, known) + "; it has " +
        (known.empty() ? "none" : join(known, ", ")));
  }
}

void TargetRules::require_used(const Names& of_model) const {
  const std::vector<std::string>&all = of_model.modules, &adapted = of_model.adapted,
        &tables = of_model.tables;
  std::vector<std::string> each;  // a head that is tied stands there twice
  for (const std::string& table : tables) {
    if (std::find(each.begin(), each.end(), table) == each.end()) each.push_back(table);
  }
  for (const std::string& name : config_.modules_to_save) {
    const auto is_called = [&](const std::string& m) { return is_named(m, name); };
    if (!any(tables, [&](const std::string& table) { return by_any_name(table, is_called); }))
      throw Error("[lora.modules_to_save] expected the embedding or the head of this model (" +
                  join(each, ", ") + "), got '" + escape_control(name) +
                  "': other modules can't be trained whole");
  }
  require_parameters_used(of_model.parameters);
  // PEFT lists modules of a vision tower by their names, also where it then left all of them out. Adapters of
  // a tower are refused by their tensors.
  const bool may_name_others = config_.from_file && !config_.checkpoint_names.other_parts.empty();
  if (!config_.targets_all_linear() && !may_name_others) {
    std::vector<std::string> called;
    for (const std::string& module : all) {
      const auto names = config_.checkpoint_names.modules_in_files(module);
      called.insert(called.end(), names.begin(), config_.from_file ? names.end() : names.begin() + 1);
    }
    require_names_used(targets_.names, "target_modules", called, config_.from_file);
  }
  if (!config_.from_file) {
    require_names_used(excluded_.names, "exclude_modules", all);
    if (!excluded_.pattern.empty() && !any(all, [&](const std::string& m) { return excluded_.match(m); }))
      fail_unused("exclude_modules", config_.exclude_modules[0], "module", all);
    for (const std::int64_t wanted : config_.layers_to_transform) {
      if (!any(adapted, [&](const std::string& m) { return layer(m) == wanted; }))
        throw Error("[lora.layers_to_transform] no module of layer " + std::to_string(wanted) +
                    " gets an adapter; layers count from 0");
    }
    const auto require_rules_used = [&](const auto& rules, const char* setting) {
      for (const auto& rule : rules) {
        if (!any(adapted, [&](const std::string& m) { return rule.regex.search(m, 0).has_value(); }))
          fail_unused(setting, rule.pattern, "adapted module", adapted);
      }
    };
    if (!adapted.empty()) {
      require_rules_used(ranks_, "rank_pattern");
      require_rules_used(alphas_, "alpha_pattern");
    }
  }
  if (!adapted.empty()) return;
  if (config_.targets_all_linear() || any(all, [&](const std::string& m) { return targets_.match(m); })) {
    throw Error(
        "[lora.target_modules] no module of this model gets an adapter: lora.exclude_modules or "
        "lora.layers_to_transform leaves out all that target_modules names");
  }
  throw Error("[lora.target_modules] no module of this model matches" +
              (targets_.pattern.empty() ? ""
                                        : " '" + escape_control(config_.target_modules[0]) +
                                              "'; a regular expression has to match a whole name, as "
                                              "'.*\\.(q|v)_proj' does") +
              "; it has " + join(last_parts(all), ", "));
}

}  // namespace lorikeet::peft
