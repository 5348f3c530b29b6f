#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "apps/config_files.h"
#include "apps/verbs/verbs.h"
#include "base/error.h"
#include "base/strings.h"
#include "comm/launcher.h"

namespace lorikeet::apps {
namespace {

constexpr const char* kSingle = "lora_finetune_single_device";
constexpr const char* kDistributed = "lora_finetune_distributed";
const std::vector<std::string> kRecipes = {kSingle, kDistributed};

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
  texts.insert(texts.begin(), (executable_folder() / o.recipe).string());
  std::vector<char*> raw;
  raw.reserve(texts.size() + 1);
  for (std::string& text : texts) raw.push_back(text.data());
  raw.push_back(nullptr);
  execv(raw[0], raw.data());
  throw Error("[run] can't start '" + texts[0] + "': " + std::strerror(errno), ErrorKind::kEnvironment);
}

int run(const Options& o) {
  if (std::find(kRecipes.begin(), kRecipes.end(), o.recipe) == kRecipes.end()) {
    throw Error("[run] no recipe '" + escape_control(o.recipe) + "'" + did_you_mean(o.recipe, kRecipes) +
                "; the recipes are " + join(kRecipes, ", "));
  }
  if (o.processes == 1) execute(o);
  if (o.recipe != kDistributed) {
    throw Error("[run] --nproc " + std::to_string(o.processes) + " needs the recipe " + kDistributed + "; " +
                o.recipe + " runs on one device");
  }
  return comm::launch(
      {.program = executable_folder() / o.recipe, .arguments = arguments(o), .processes = o.processes});
}

}  // namespace

Verb add_run(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Runs a recipe with a config file or a ready-made config.");
  command->add_option("recipe", o->recipe, join(kRecipes, " or "))->required();
  command->add_option("--config", o->config, "a file, or a name that `lorikeet ls` lists")->required();
  command->add_option("--nproc", o->processes, "processes to start on this machine, one a device")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("overrides", o->overrides, "a.b=value sets a setting, ~a.b drops it to its default");
  return {command, [o]() -> int { return run(*o); }};
}

}  // namespace lorikeet::apps
