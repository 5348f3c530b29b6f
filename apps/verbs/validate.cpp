#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/config_files.h"
#include "apps/hub_paths.h"
#include "apps/verbs/verbs.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "config/config.h"
#include "recipes/validation.h"

namespace lorikeet::apps {
namespace {

// What ready-made configs name in the place of a user's own files.
std::set<std::string> placeholders() {
  std::set<std::string> paths;
  if (!find_configs_folder()) return paths;
  for (const std::string& name : config_names()) {
    const config::Settings settings = config::load_settings(find_config(name));
    paths.insert({settings.model.path, settings.data.train.path});
  }
  return paths;
}

// The names of the settings that overrides give.
std::set<std::string> names_of(const std::vector<std::string>& overrides) {
  std::set<std::string> names;
  for (const std::string& text : overrides) {
    if (!text.starts_with('~')) names.insert(trim(text.substr(0, text.find('='))));
  }
  return names;
}

// A model whose name is among `unread` isn't looked for: its path is none of the user's.
recipes::Validation look(config::Settings settings, const std::vector<std::string>& overrides,
                         const std::set<std::string>& unread = {}) {
  use_local_paths(settings, hub::Absent::kError);
  recipes::ValidationRequest request{
      .settings = std::move(settings), .given = names_of(overrides), .placeholders = placeholders()};
  for (const std::string& name : unread) request.given.erase(name);
  if (unread.contains("model.path")) request.placeholders.insert(request.settings.model.path);
  return recipes::validate(request);
}

Error error_of(const std::vector<std::string>& problems) {
  return Error("[validate] " + std::to_string(problems.size()) + " problems:\n  " + join(problems, "\n  "));
}

// The problems of settings that can't all be read, and of what the others name.
[[noreturn]] void fail(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                       const config::PartialSettings& read) {
  std::vector<std::string> problems = read.problems;
  const auto add = [&](const std::string& problem) {
    if (!config::follows_from(problem, read.unread)) problems.push_back(problem);
  };
  try {
    for (const std::string& problem : look(read.settings, overrides, read.unread).problems) add(problem);
  } catch (const Error& error) {  // a path on the hub
    add(error.what());
  }
  if (problems.size() == read.problems.size()) config::load_settings(file, overrides);  // throws these
  throw error_of(problems);
}

int validate(const std::string& file, const std::vector<std::string>& overrides) {
  const std::filesystem::path path = find_config(file);
  const config::PartialSettings read = config::read_settings(path, overrides);
  if (!read.problems.empty()) fail(path, overrides, read);
  const recipes::Validation found = look(read.settings, overrides);
  if (found.problems.size() == 1) throw Error(found.problems[0]);
  if (!found.problems.empty()) throw error_of(found.problems);
  for (const std::string& warning : found.warnings) log_warning(warning);
  std::cout << "valid\n";
  log_info("not checked: " + join(found.unchecked, ", "));
  return 0;
}

}  // namespace

Verb add_validate(CLI::App& app) {
  struct Options {
    std::string file;
    std::vector<std::string> overrides;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "validate",
      "Checks a config file with overrides, and what it names (device, model, target modules, data, "
      "template), "
      "as a run does at its start: all problems at once. Reads no weights and writes nothing.");
  command->add_option("file", o->file, "a config file, or a name that `lorikeet ls` lists")->required();
  command->add_option("overrides", o->overrides, "a.b=value sets a setting, ~a.b drops it to its default");
  return {command, [o] { return validate(o->file, o->overrides); }};
}

}  // namespace lorikeet::apps
