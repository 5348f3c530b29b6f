#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/config_files.h"
#include "apps/hub_paths.h"
#include "apps/verbs/gpu_tests.h"
#include "apps/verbs/probe_program.h"
#include "apps/verbs/verbs.h"
#include "base/error.h"
#include "base/strings.h"
#include "config/config.h"
#include "probe/active.h"
#include "probe/checks.h"
#include "probe/operators/gpu_tests.h"
#include "probe/probes.h"
#include "recipes/preflight.h"

namespace lorikeet::apps {
namespace {

constexpr const char* kProbeVerb = "probe";

struct Options {
  std::vector<std::string> words;  // a config, unless the first is an override, then overrides
  bool quick = false, json = false, gpu_tests = false;
  std::optional<std::string> output_dir;
  std::optional<int> ranks, nodes;
  std::optional<double> limit_seconds;
};

bool is_override(const std::string& word) {
  return word.starts_with('~') || word.find('=') != std::string::npos;
}

config::Settings settings_of(const Options& options) {
  const auto& words = options.words;
  const bool has_config = !words.empty() && !is_override(words[0]);
  std::vector<std::string> overrides(words.begin() + (has_config ? 1 : 0), words.end());
  if (options.output_dir)
    overrides.push_back(config::make_override("checkpoint.output_dir", *options.output_dir));
  if (has_config) {
    config::Settings settings = config::load_settings(find_config(words[0]), overrides);
    use_cached_paths(settings);
    return settings;
  }
  // Of a run that isn't known yet only the machine can be looked at.
  overrides.insert(overrides.begin(),
                   config::make_override("checkpoint.output_dir", "."));  // a later one counts
  overrides.push_back(config::make_override("model.path", "."));
  return config::parse_settings("", "command line", overrides);
}

probe::ActivePlan active_plan(const probe::Sources& sources, const Options& options) {
  return {.program = probe_program(),
          .gpus = recipes::probed_gpus(sources),
          .ranks = sources.needs.ranks,
          .policy = sources.needs.policy,
          .deterministic = sources.needs.deterministic,
          .folder = sources.needs.output_dir,
          .limit_seconds = options.limit_seconds};
}

// The operators' tests on the GPUs that the settings allow.
int test_gpus(const Options& options, const config::Settings& settings) {
  probe::Findings findings;
  const auto needs = recipes::needs_of(settings, options.ranks, options.nodes, findings);
  const auto gpus = recipes::probed_gpus(probe::read_sources(needs, /*look_at_gpus=*/true));
  if (gpus.empty()) {
    std::vector<std::string> reasons;
    for (const probe::Finding& finding : findings) reasons.push_back(finding.sentence);
    throw Error("[doctor] --gpu-tests: expected a GPU, got " +
                    (reasons.empty() ? "none that this run would use" : join(reasons, "; ")) +
                    "; `lorikeet doctor --quick device=cuda` shows why none is offered",
                ErrorKind::kEnvironment);
  }
  const auto tests = probe::run_gpu_tests(probe_program(), gpus, options.limit_seconds);
  std::cout << (options.json ? probe::gpu_tests_json(tests).dump(2) + "\n" : gpu_tests_table(tests));
  return probe::exit_code(tests);
}

int run(const Options& options) {
  const config::Settings settings = settings_of(options);
  if (options.gpu_tests) return test_gpus(options, settings);
  probe::Findings findings;
  const auto needs = recipes::needs_of(settings, options.ranks, options.nodes, findings);
  const probe::Sources sources = probe::read_sources(needs, /*look_at_gpus=*/true);
  for (probe::Finding& finding : probe::run_checks(sources, /*with_well=*/true))
    findings.push_back(std::move(finding));
  if (!options.quick) {
    for (probe::Finding& finding : probe::run_probes(active_plan(sources, options)))
      findings.push_back(std::move(finding));
  }
  std::cout << (options.json ? probe::findings_json(findings).dump(2) + "\n" : probe::format_table(findings));
  return probe::exit_code(findings);
}

}  // namespace

probe::ProbeProgram probe_program() { return {executable_folder() / "lorikeet", {kProbeVerb}}; }

Verb add_doctor(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Looks for what makes runs on this machine slow, wrong or impossible, and names the command that fixes "
      "it (docs/doctor.md). Exit codes: 0 all is well, 1 warnings, 3 a run can't be right here.");
  command->add_option(
      "config", o->words,
      "the run that is meant: a config file or a name that `lorikeet ls` lists, then overrides "
      "(a.b=value); overrides alone are fine");
  CLI::Option* quick =
      command->add_flag("--quick", o->quick, "only what a run checks at its start: nothing is measured");
  command
      ->add_flag(
          "--gpu-tests", o->gpu_tests,
          "only this: every operator on each GPU, forward and backward, against fp64 on the CPU, in each "
          "precision that the card has; exit code 1 where one is wrong, 3 without a GPU")
      ->excludes(quick);
  command->add_flag("--json", o->json, "the findings, or the tests, as JSON");
  command
      ->add_option("--output-dir", o->output_dir,
                   "in place of the config's checkpoint.output_dir; without a config the working folder")
      ->type_name("DIR");
  command->add_option("--ranks", o->ranks, "processes on this machine; by default one for each visible GPU")
      ->check(CLI::Range(1, 1024));
  command->add_option("--nnodes", o->nodes, "machines of the run; by default it may be on one or on several")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--time-limit", o->limit_seconds,
                   "for each probe; by default 20 for the all-reduce, 60 for others")
      ->check(CLI::Range(1, 3600))
      ->type_name("SECONDS");
  return {command, [o] { return run(*o); }};
}

Verb add_probe(CLI::App& app) {
  auto request = std::make_shared<std::string>();
  // doctor's children; a group of no name isn't listed by --help.
  CLI::App* command = app.add_subcommand(kProbeVerb, "one probe of `lorikeet doctor`")->group("");
  command->add_option("request", *request)->required();
  return {command, [request] {
            std::cout << probe::answer(probe::ProbeRequest::parse(*request)).text() << "\n";
            return 0;
          }};
}

}  // namespace lorikeet::apps
