#include <iostream>
#include <memory>
#include <optional>

#include "apps/verbs/adapters.h"
#include "apps/verbs/between.h"
#include "apps/verbs/home_path.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/strings.h"
#include "models/registry.h"
#include "peft/foreign_adapter.h"
#include "recipes/adapter_output.h"

namespace lorikeet::apps {
namespace {

struct Options {
  std::string file, base, output;
  std::optional<double> alpha;
};

int import_adapter(const Options& o) {
  recipes::require_new_folder(o.output);
  const Json config = models::read_config_json(o.base);
  std::optional<peft::ForeignScale> scale = peft::read_foreign_scale(o.file);
  if (o.alpha) {
    if (!scale) scale.emplace();
    scale->alpha = *o.alpha;
  }
  if (!scale) {
    throw Error(
        "[adapters] neither adapter_config.json (torchtune's) nor hyperparameters.yaml (litgpt's) is beside "
        "'" +
        escape_control(o.file) + "': give its alpha by --alpha");
  }
  peft::AdapterContents adapter =
      peft::read_foreign_adapter(o.file, JsonView(config, o.base + "/config.json"), *scale);
  adapter.base_model = o.base;
  recipes::write_adapter(adapter, {o.base}, o.output);
  std::cout << escape_control("wrote " + counted(adapter.modules.size(), "module") + " to " + o.output)
            << "\n";
  return 0;
}

}  // namespace

Verb add_adapters_import(CLI::App& adapters) {
  auto o = std::make_shared<Options>();
  CLI::App* command = adapters.add_subcommand(
      "import", "Writes the LoRA adapter that torchtune or litgpt saved by torch.save as a PEFT adapter.");
  command->add_option("file", o->file, "torchtune's adapter_0.pt, litgpt's lit_model.pth.lora")
      ->required()
      ->transform(home_path());
  command->add_option("--base", o->base, "the checkpoint's folder: its config.json says how rows lie")
      ->required()
      ->transform(home_path());
  command->add_option("--alpha", o->alpha, "where no file beside says it")->check(between(1e-6, 1e6));
  command->add_option("--output", o->output, "a new or empty folder")->required()->transform(home_path());
  return {command, [o] { return import_adapter(*o); }};
}

}  // namespace lorikeet::apps
