#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/verbs/bench.h"
#include "apps/verbs/between.h"
#include "apps/verbs/home_path.h"
#include "bench/report.h"
#include "bench/verdict.h"

namespace lorikeet::apps {
namespace {

struct Options {
  std::string a, b;
  int warmup_steps = 2;
  bool json = false;
};

bench::Group group_of(const std::string& folder) {
  bench::RunRecord run = bench::read_run(folder, "the run in '" + folder + "'");
  bench::Group group{folder, run.world_size, {}};
  group.attempts.push_back({.run = std::move(run)});
  return group;
}

int compare(const Options& o) {
  bench::Report report{.title = "Two runs",
                       .command = "lorikeet bench compare " + o.a + " " + o.b,
                       .warmup_steps = o.warmup_steps,
                       .groups = {group_of(o.a), group_of(o.b)}};
  report.evaluation = bench::evaluate(report.groups, report.warmup_steps);
  report.verdict = bench::comparison_verdict(report.evaluation);
  std::cout << (o.json ? bench::report_json(report).dump(2) + "\n" : bench::report_text(report));
  return 0;
}

}  // namespace

Verb add_bench_compare(CLI::App& bench) {
  auto o = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "compare",
      "Compares the speed of two finished runs, perhaps of two machines, by their output folders. Refuses "
      "where "
      "they did different work: other settings, data, model, precision, version or code.");
  command->add_option("run", o->a, "the output folder of the run that is compared with")
      ->required()
      ->transform(home_path());
  command->add_option("other", o->b, "the other's")->required()->transform(home_path());
  command->add_option("--warmup", o->warmup_steps, "steps at the beginning of each that don't count")
      ->capture_default_str()
      ->check(between(0, 1 << 20));
  command->add_flag("--json", o->json, "the result as JSON");
  return {command, [o] { return compare(*o); }};
}

}  // namespace lorikeet::apps
