#include "apps/verbs/adapters.h"

namespace lorikeet::apps {

Verb add_adapters(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "adapters",
      "Shows, compares, averages, scales, shrinks, flattens and imports LoRA adapters, without their base.");
  command->require_subcommand(1);
  const std::vector<Verb> verbs = {add_adapters_show(*command),    add_adapters_diff(*command),
                                   add_adapters_average(*command), add_adapters_scale(*command),
                                   add_adapters_shrink(*command),  add_adapters_flatten(*command),
                                   add_adapters_import(*command)};
  return {command, [verbs] {
            for (const Verb& verb : verbs) {
              if (verb.command->parsed()) return verb.action();
            }
            return 2;
          }};
}

}  // namespace lorikeet::apps
