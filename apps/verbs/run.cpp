#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "apps/config_files.h"
#include "apps/guard.h"
#include "apps/recipe_names.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/verbs.h"
#include "base/c_strings.h"
#include "base/error.h"
#include "base/strings.h"
#include "comm/launcher.h"
#include "comm/placement.h"

namespace lorikeet::apps {
namespace {

struct Options {
  std::string recipe, config;
  int processes = 1;
  std::optional<int> nodes;
  std::optional<int> node;
  std::optional<std::string> rendezvous, secret_file;
  std::optional<double> timeout_seconds;
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

// What the command line says of other machines.
comm::NodeOptions node_options(const Options& o) {
  if (!o.nodes) {
    if (o.node || o.rendezvous || o.secret_file || o.timeout_seconds) {
      throw Error(
          "[run] --node-rank, --rendezvous, --rendezvous-timeout and --secret-file are for several machines; "
          "add --nnodes, or leave them out");
    }
    return {};
  }
  if (o.node && *o.node >= *o.nodes) {
    throw Error("[run] --node-rank " + std::to_string(*o.node) + " is not a number below --nnodes, " +
                std::to_string(*o.nodes) + "; machines are numbered from 0");
  }
  if (*o.nodes == 1) return {};  // a batch system's command for any number of machines
  if (!o.node || !o.rendezvous) {
    throw Error(
        "[run] --nnodes " + std::to_string(*o.nodes) +
        " needs --node-rank, a different one from 0 on each machine, and --rendezvous host:port, the same "
        "on all: an address of node 0 and a free port of it");
  }
  comm::NodeOptions nodes{.nodes = *o.nodes, .node = *o.node};
  std::tie(nodes.host, nodes.port) = comm::parse_address(*o.rendezvous, "run: --rendezvous");
  if (o.timeout_seconds) nodes.timeout_seconds = *o.timeout_seconds;
  nodes.secret = comm::read_secret(o.secret_file);
  return nodes;
}

int run(const Options& o) {
  const std::vector<std::string> recipes = recipe_names();
  if (std::find(recipes.begin(), recipes.end(), o.recipe) == recipes.end()) {
    throw Error("[run] no recipe '" + escape_control(o.recipe) + "'" + did_you_mean(o.recipe, recipes) +
                "; the recipes are " + join(recipes, ", "));
  }
  const comm::NodeOptions nodes = node_options(o);
  if (o.processes == 1 && nodes.nodes == 1) execute(o);
  if (o.recipe != kDistributedRecipe) {
    throw Error("[run] " +
                (nodes.nodes > 1 ? "--nnodes " + std::to_string(nodes.nodes)
                                 : "--nproc " + std::to_string(o.processes)) +
                " needs the recipe " + kDistributedRecipe + "; " + o.recipe + " runs on one device");
  }
  outlive_stderr();
  return comm::launch({.program = recipe_program(o.recipe),
                       .arguments = arguments(o),
                       .processes = o.processes,
                       .nodes = nodes});
}

}  // namespace

Verb add_run(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Runs a recipe with a config file or a ready-made config.");
  command->add_option("recipe", o->recipe, join(recipe_names(), " or "))->required();
  command->add_option("--config", o->config, "a file, or a name that `lorikeet ls` lists")->required();
  command->add_option("--nproc", o->processes, "processes to start on this machine, one a device")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--nnodes", o->nodes, "machines of the run; this command is given on each")
      ->check(CLI::Range(1, 1024));
  command->add_option("--node-rank", o->node, "this machine's number, from 0")->check(CLI::Range(0, 1023));
  command
      ->add_option("--rendezvous", o->rendezvous,
                   "where the machines meet: an address of machine 0 in the network between them, and a port")
      ->type_name("HOST:PORT");
  command
      ->add_option("--rendezvous-timeout", o->timeout_seconds,
                   "how long to wait for the others; 120 by default")
      ->check(CLI::Range(1, 86400))
      ->type_name("SECONDS");
  command
      ->add_option("--secret-file", o->secret_file,
                   "what a machine has to know to join, the same on all; without it LORIKEET_SECRET")
      ->type_name("FILE")
      ->transform(home_path());
  command->add_option("overrides", o->overrides, "a.b=value sets a setting, ~a.b drops it to its default");
  return {command, [o]() -> int { return run(*o); }};
}

}  // namespace lorikeet::apps
