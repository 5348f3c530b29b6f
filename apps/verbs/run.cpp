#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "apps/config_files.h"
#include "apps/guard.h"
#include "apps/recipe_names.h"
#include "apps/verbs/verbs.h"
#include "base/c_strings.h"
#include "base/error.h"
#include "base/strings.h"
#include "comm/launcher.h"

namespace lorikeet::apps {
namespace {

struct Options {
  std::string recipe, config;
  int processes = 1;
  std::vector<std::string> overrides;
};

std::vector<std::string> arguments(const Options& o) {
  std::vector<std::string> out{"--config", find_config(o.config).string()};
  out.insert(out.end(), o.overrides.begin(), o.overrides.end());
  return out;
}

// Replaces this process by the recipe's program, so that signals and exit codes are its own.
[[noreturn]] void execute(const Options& o) {
  std::vector<std::string> texts = arguments(o);
  texts.insert(texts.begin(), recipe_program(o.recipe).string());
  execv(texts[0].c_str(), c_strings(texts).data());
  throw Error("[run] can't start '" + texts[0] + "': " + std::strerror(errno), ErrorKind::kEnvironment);
}

int run(const Options& o) {
  const std::vector<std::string> recipes = recipe_names();
  if (std::find(recipes.begin(), recipes.end(), o.recipe) == recipes.end()) {
    throw Error("[run] no recipe '" + escape_control(o.recipe) + "'" + did_you_mean(o.recipe, recipes) +
                "; the recipes are " + join(recipes, ", "));
  }
  if (o.processes == 1) execute(o);
  if (o.recipe != kDistributedRecipe) {
    throw Error("[run] --nproc " + std::to_string(o.processes) + " needs the recipe " + kDistributedRecipe +
                "; " + o.recipe + " runs on one device");
  }
  outlive_stderr();
  return comm::launch(
      {.program = recipe_program(o.recipe), .arguments = arguments(o), .processes = o.processes});
}

}  // namespace

Verb add_run(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Runs a recipe with a config file or a ready-made config.");
  command->add_option("recipe", o->recipe, join(recipe_names(), " or "))->required();
  command->add_option("--config", o->config, "a file, or a name that `lorikeet ls` lists")->required();
  command
      ->add_option("--nproc", o->processes,
                   "processes to start, one a device; for several machines see docs/distributed.md")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("overrides", o->overrides, "a.b=value sets a setting, ~a.b drops it to its default");
  return {command, [o]() -> int { return run(*o); }};
}

}  // namespace lorikeet::apps
