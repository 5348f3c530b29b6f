#include "apps/verbs/bench.h"

namespace lorikeet::apps {

Verb add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measures what a run does on one device and on several.");
  command->require_subcommand(1);
  const std::vector<Verb> verbs = {add_bench_scaling(*command), add_bench_compare(*command)};
  return {command, [verbs] {
            for (const Verb& verb : verbs) {
              if (verb.command->parsed()) return verb.action();
            }
            return 2;
          }};
}

}  // namespace lorikeet::apps
