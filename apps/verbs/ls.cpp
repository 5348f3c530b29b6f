#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "apps/config_files.h"
#include "apps/published_models.h"
#include "apps/recipe_names.h"
#include "apps/table.h"
#include "apps/verbs/verbs.h"
#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"
#include "config/config.h"
#include "recipes/model_facts.h"

namespace lorikeet::apps {
namespace {

/// A ready-made config.
struct Entry {
  std::string name;  ///< "qwen3/8B_lora": family, size, method
  std::string family, size, method;
  std::optional<PublishedModel> model;       ///< that it is for; none of the embedded example
  std::optional<recipes::ModelFacts> facts;  ///< of the model
};

Entry entry_of(const std::string& name) {
  const std::size_t slash = name.find('/'), underscore = name.rfind('_');
  return {.name = name,
          .family = name.substr(0, slash),
          .size = name.substr(slash + 1, underscore - slash - 1),
          .method = name.substr(underscore + 1)};
}

bool has_all(const Entry& entry, const std::vector<std::string>& words) {
  const std::string text = ascii_lower(entry.name + (entry.model ? " " + entry.model->repository : ""));
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
    return text.find(ascii_lower(word)) != std::string::npos;
  });
}

std::vector<Entry> all_entries() {
  const std::vector<PublishedModel> models = published_models();
  std::vector<Entry> entries;
  for (const std::string& name : config_names()) {
    Entry entry = entry_of(name);
    for (const PublishedModel& model : models) {
      if (model.family == entry.family && model.size == entry.size) entry.model = model;
    }
    entries.push_back(entry);
  }
  return entries;
}

void add_facts(Entry& entry) {
  if (!entry.model) return;
  const config::Settings settings = config::load_settings(find_config(entry.name));
  entry.facts = recipes::model_facts(entry.model->config, settings);
}

std::vector<Entry> matching(const std::vector<std::string>& words) {
  std::vector<Entry> entries = all_entries();
  std::vector<std::string> families;
  families.reserve(entries.size());
  for (const Entry& entry : entries) families.push_back(entry.family);
  std::erase_if(entries, [&](const Entry& entry) { return !has_all(entry, words); });
  if (entries.empty()) {
    throw Error("[ls] no ready-made config has '" + escape_control(join(words, "' and '")) + "' in its name" +
                (words.size() == 1 ? did_you_mean(words[0], families) : "") + "; `lorikeet ls` lists all");
  }
  for (Entry& entry : entries) add_facts(entry);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const auto size = [](const Entry& entry) { return entry.facts ? entry.facts->parameters : 0; };
    return std::tuple(a.family, size(a), a.name) < std::tuple(b.family, size(b), b.name);
  });
  return entries;
}

// "8.03 B", "361.8 M"
std::string short_count(std::int64_t count) {
  const auto number = static_cast<double>(count);
  return number >= 1e9 ? format_number("%.2f B", number / 1e9) : format_number("%.1f M", number / 1e6);
}

void print(const std::vector<Entry>& entries) {
  std::vector<std::vector<std::string>> rows{
      {"family", "size", "method", "parameters", "least memory", "config"}};
  for (const Entry& entry : entries) {
    const auto& facts = entry.facts;
    rows.push_back({entry.family, entry.size, entry.method, facts ? short_count(facts->parameters) : "-",
                    facts ? format_bytes(static_cast<std::uint64_t>(facts->least_memory_bytes)) : "-",
                    entry.name});
  }
  std::cout << join(recipe_names(), ", ") << "\n";
  std::cout << text_table(rows, rows.front().size(), 2);
  std::cout << "Least memory of one GPU: the config with activation checkpointing, one row of "
               "data.max_seq_len tokens at "
               "a time.\n";
}

Json as_json(const std::vector<Entry>& entries) {
  Json::Array configs;
  for (const Entry& entry : entries) {
    const auto& facts = entry.facts;
    Json json;
    json.set("name", entry.name)
        .set("family", entry.family)
        .set("size", entry.size)
        .set("method", entry.method)
        .set("model", entry.model ? Json(entry.model->repository) : Json())
        .set("parameters", facts ? Json(facts->parameters) : Json())
        .set("least_memory_bytes", facts ? Json(facts->least_memory_bytes) : Json());
    configs.push_back(std::move(json));
  }
  Json json;
  Json::Array recipes;
  for (const std::string& name : recipe_names()) recipes.emplace_back(name);
  json.set("recipes", Json(std::move(recipes))).set("configs", Json(std::move(configs)));
  return json;
}

}  // namespace

Verb add_ls(CLI::App& app) {
  struct Options {
    std::vector<std::string> words;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("ls",
                                         "Lists the recipes and their ready-made configs: model, size, "
                                         "method, parameters, and the least memory of "
                                         "one GPU that a step needs.");
  command->add_option("words", o->words,
                      "only configs with all of these in their name or their model's: qwen3 8B");
  command->add_flag("--json", o->json, "as JSON, with bytes and exact numbers");
  return {command, [o] {
            const std::vector<Entry> entries = matching(o->words);
            if (o->json) {
              std::cout << as_json(entries).dump(2) << "\n";
            } else {
              print(entries);
            }
            return 0;
          }};
}

}  // namespace lorikeet::apps
