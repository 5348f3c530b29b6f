#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "peft/lora_config.h"
#include "text/regex.h"

namespace lorikeet::peft {

/// Which modules get an adapter, and of which rank and scale: the rules of a LoraConfig, as PEFT 0.21 applies
/// them (check_target_module_exists and get_pattern_key). Names are the checkpoint's, without ".weight".
class TargetRules {
 public:
  /// Throws Error, naming the setting, for a regular expression that PCRE2 doesn't compile.
  explicit TargetRules(const LoraConfig& config);

  /// True if a module gets an adapter. `by_name_only` marks what all-linear leaves out: the embedding, the
  /// head, experts.
  bool matches(const std::string& module, bool by_name_only) const;
  /// True if every expert gets an adapter on its slice of a parameter. Its rank and scale are those of the
  /// parameter's name.
  bool targets(const std::string& parameter) const;
  /// True of one of the experts' modules where the tensors of the settings' adapter file have none of these
  /// experts: on transformers 5, where experts are no modules, PEFT takes "down_proj" for the shared
  /// expert's.
  bool leaves_out(const std::string& expert_module) const;
  /// True if the embedding or the head is trained whole.
  bool saves(const std::string& module) const;
  std::int64_t rank(const std::string& module) const;
  double alpha(const std::string& module) const;
  /// alpha over the rank, or over its square root with rsLoRA.
  double scale(const std::string& module) const;

  /// The names of a model that the settings may mean.
  struct Names {
    std::vector<std::string> modules;     ///< all of them
    std::vector<std::string> parameters;  ///< of experts
    std::vector<std::string> adapted;     ///< modules and parameters with an adapter
    std::vector<std::string> tables;      ///< what may be trained whole
  };
  /// Throws Error for a setting that has no effect on a model with these: a target, an exclusion, a layer or
  /// a pattern that matches none, or a module to save that isn't one of the tables. Of an adapter file's
  /// settings only the targets and the modules to save are looked at.
  void require_used(const Names& of_model) const;

 private:
  /// Names, or the one regular expression that they are.
  struct Targets {
    std::set<std::string, std::less<>> names;
    std::vector<text::Regex> pattern;  // none or one
    bool match(const std::string& module) const;
  };
  template <typename T>
  struct Rule {
    std::string pattern;
    text::Regex regex;
    T value;
  };
  template <typename T>
  static std::vector<Rule<T>> compile(const LoraConfig::Pattern<T>& pattern, const char* setting);
  static Targets compile_names(const std::vector<std::string>& names, const char* setting);

  // Whether `matches` is true of a module by its name or, for an adapter file's settings, by one that files
  // may have for it.
  template <typename Matches>
  bool by_any_name(const std::string& module, const Matches& matches) const;
  template <typename T>
  T value_of(const std::string& module, const std::vector<Rule<T>>& rules, T otherwise) const;
  void require_parameters_used(const std::vector<std::string>& parameters) const;
  std::optional<std::int64_t> layer(const std::string& module) const;
  bool in_layers(const std::string& module) const;

  LoraConfig config_;
  Targets targets_, excluded_;
  std::vector<text::Regex> layers_;
  std::vector<Rule<std::int64_t>> ranks_;
  std::vector<Rule<double>> alphas_;
};

}  // namespace lorikeet::peft
