#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "apps/config_files.h"
#include "apps/verbs/verbs.h"
#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::apps {
namespace {

const std::vector<std::string> kRecipes = {"lora_finetune_single_device"};

// Replaces this process by the recipe's program, so that signals and exit codes are its own.
[[noreturn]] void execute(const std::string& recipe, const std::string& config,
                          const std::vector<std::string>& overrides) {
  std::vector<std::string> arguments{(executable_folder() / recipe).string(), "--config",
                                     find_config(config).string()};
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  execv(raw[0], raw.data());
  throw Error("[run] can't start '" + arguments[0] + "': " + std::strerror(errno), ErrorKind::kEnvironment);
}

}  // namespace

Verb add_run(CLI::App& app) {
  struct Options {
    std::string recipe, config;
    std::vector<std::string> overrides;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Runs a recipe with a config file or a ready-made config.");
  command->add_option("recipe", o->recipe, "lora_finetune_single_device")->required();
  command->add_option("--config", o->config, "a file, or a name that `lorikeet ls` lists")->required();
  command->add_option("overrides", o->overrides, "a.b=value sets a setting, ~a.b drops it to its default");
  return {command, [o]() -> int {
            for (const std::string& recipe : kRecipes) {
              if (recipe == o->recipe) execute(recipe, o->config, o->overrides);
            }
            throw Error("[run] no recipe '" + escape_control(o->recipe) + "'" +
                        did_you_mean(o->recipe, kRecipes) + "; the recipes are " + join(kRecipes, ", "));
          }};
}

}  // namespace lorikeet::apps
