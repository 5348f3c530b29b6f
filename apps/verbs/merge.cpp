#include "recipes/merge.h"

#include <iostream>
#include <memory>

#include "apps/hub_paths.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/model_options.h"
#include "apps/verbs/verbs.h"
#include "base/json.h"
#include "recipes/devices.h"

namespace lorikeet::apps {

Verb add_merge(CLI::App& app) {
  struct Options {
    std::string model, adapter, output, base;
    std::vector<std::string> overrides;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "merge", "Adds an adapter to its base and writes a full checkpoint in the base's dtype and shards.");
  command->add_option("model", o->model, "the base checkpoint's folder, or hub:REPO")
      ->required()
      ->transform(home_path());
  command->add_option("adapter", o->adapter, "the PEFT adapter's folder")->required()->transform(home_path());
  command->add_option("output", o->output, "a new folder")->required()->transform(home_path());
  command
      ->add_option("--base", o->base,
                   "the unquantised checkpoint to add the adapter to, where MODEL is quantised (else MODEL's "
                   "weights are written as plain numbers)")
      ->transform(home_path());
  command->add_option("overrides", o->overrides, "settings, e.g. device=cpu");
  return {command, [o] {
            o->model = local_model(o->base.empty() ? o->model : o->base);
            const auto settings = verb_settings("merge", o->model, o->overrides);
            // A card has less memory than most bases need beside what else is there, and wins little.
            const bool free_choice = settings.device.kind == config::DeviceSetting::Kind::kAuto;
            const recipes::MergeReport report =
                recipes::merge(o->model, o->adapter, o->output,
                               free_choice ? device::Device{} : recipes::choose_device(settings.device));
            std::cout << Json()
                             .set("output", o->output)
                             .set("merged_tensors", static_cast<std::int64_t>(report.merged_tensors))
                             .set("largest_logit_change", report.largest_logit_change)
                             .set("largest_adapter_effect", report.largest_adapter_effect)
                             .dump()
                      << "\n";
            return 0;
          }};
}

}  // namespace lorikeet::apps
