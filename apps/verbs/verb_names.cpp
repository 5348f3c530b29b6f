#include "apps/verbs/verb_names.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/recipe_names.h"
#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::apps {
namespace {

// What the verbs are called elsewhere.
constexpr auto kOtherWords = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"train", "run"},
    {"tune", "run"},
    {"finetune", "run"},
    {"fine-tune", "run"},
    {"sft", "run"},
    {"launch", "run"},
    {"list", "ls"},
    {"copy", "cp"},
    {"check", "validate"},
    {"settings", "config"},
    {"tokens", "preview"},
    {"encode", "tokenize"},
    {"tokenise", "tokenize"},
    {"template", "render"},
    {"evaluate", "eval"},
    {"test", "eval"},
    {"infer", "generate"},
    {"inference", "generate"},
    {"chat", "generate"},
    {"export", "merge"},
    {"lora", "adapters"},
    {"average", "adapters"},
    {"topology", "topo"},
    {"diagnose", "doctor"},
    {"env", "doctor"},
    {"benchmark", "bench"},
    {"estimate", "plan"},
    {"pull", "download"},
    {"fetch", "download"},
    {"convert", "convert-config"},
    {"import", "convert-config"},
});

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  std::vector<const CLI::App*> verbs = app.get_subcommands([](const CLI::App*) { return true; });
  std::erase_if(verbs, [](const CLI::App* verb) { return verb->get_group().empty(); });  // not for people
  return verbs;
}

// " (did you mean 'run'?)", also for another word for it; "" for anything else.
std::string meant(const std::string& word, const std::vector<std::string>& names) {
  const std::vector<std::string> recipes = recipe_names();
  if (std::find(recipes.begin(), recipes.end(), word) != recipes.end())
    return " (did you mean 'run " + word + "'?)";
  if (std::string text = did_you_mean(word, names); !text.empty()) return text;
  std::vector<std::string> others;
  for (const auto& [other, verb] : kOtherWords) {
    if (std::find(names.begin(), names.end(), verb) != names.end()) others.emplace_back(other);
  }
  const auto other = nearest(word, others);
  if (!other) return "";
  const auto* const entry = std::find_if(kOtherWords.begin(), kOtherWords.end(),
                                         [&](const auto& pair) { return pair.first == *other; });
  return " (did you mean '" + std::string(entry->second) + "'?)";
}

}  // namespace

void require_known_verbs(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* at = &app;
  for (int i = 1; i < argc || at->get_require_subcommand_min() > 0; ++i) {
    const std::vector<const CLI::App*> verbs = verbs_of(*at);
    if (verbs.empty()) return;
    const std::string word = i < argc ? argv[i] : "";
    if (word.starts_with('-')) return;  // --help or --version, or a mistake that CLI11 names
    const std::vector<const CLI::App*> found =
        at->get_subcommands([&](const CLI::App* verb) { return verb->get_name() == word; });
    if (found.empty()) {
      std::vector<std::string> names;
      names.reserve(verbs.size());
      for (const CLI::App* verb : verbs) names.push_back(verb->get_name());
      throw Error((i < argc ? "unknown verb '" + escape_control(word) + "'" + meant(word, names)
                            : std::string("expected a verb, got none")) +
                  "; the verbs of `" + at->get_display_name() + "` are " + join(names, ", ") +
                  "; `VERB --help` lists what one takes");
    }
    at = found[0];
  }
}

}  // namespace lorikeet::apps
