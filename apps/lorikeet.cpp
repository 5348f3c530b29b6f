#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/guard.h"
#include "apps/verbs/verb_names.h"
#include "apps/verbs/verbs.h"
#include "base/version.h"

namespace {

using lorikeet::apps::Verb;

std::vector<Verb> add_all(CLI::App& app) {
  return {lorikeet::apps::add_run(app),      lorikeet::apps::add_ls(app),
          lorikeet::apps::add_cp(app),       lorikeet::apps::add_validate(app),
          lorikeet::apps::add_config(app),   lorikeet::apps::add_preview(app),
          lorikeet::apps::add_tokenize(app), lorikeet::apps::add_eval(app),
          lorikeet::apps::add_generate(app), lorikeet::apps::add_merge(app),
          lorikeet::apps::add_adapters(app), lorikeet::apps::add_topo(app),
          lorikeet::apps::add_doctor(app),   lorikeet::apps::add_probe(app),
          lorikeet::apps::add_bench(app),    lorikeet::apps::add_plan(app),
          lorikeet::apps::add_download(app), lorikeet::apps::add_convert_config(app),
          lorikeet::apps::add_render(app)};
}

int run(int argc, char** argv) {
  CLI::App app(
      "Lorikeet fine-tunes open language models with LoRA. `lorikeet VERB --help` lists what a verb takes.",
      "lorikeet");
  app.set_version_flag("--version", std::string(lorikeet::kVersion));
  app.require_subcommand(1);
  const std::vector<Verb> verbs = add_all(app);
  lorikeet::apps::require_known_verbs(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return lorikeet::apps::end_of_parsing(app, error);
  }
  for (const Verb& verb : verbs) {
    if (verb.command->parsed()) return verb.action();
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  return lorikeet::apps::guarded([&] { return run(argc, argv); });
}
