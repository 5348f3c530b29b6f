#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace lorikeet::apps {

/// What a verb does once the command line was read; returns the exit code.
using Action = std::function<int()>;

/// A verb: adds its subcommand with options and help to `app` and returns its action. One file a verb.
struct Verb {
  CLI::App* command;
  Action action;
};

Verb add_run(CLI::App& app);
Verb add_ls(CLI::App& app);
Verb add_cp(CLI::App& app);
Verb add_download(CLI::App& app);
Verb add_convert_config(CLI::App& app);
Verb add_validate(CLI::App& app);
Verb add_config(CLI::App& app);
Verb add_preview(CLI::App& app);
Verb add_tokenize(CLI::App& app);
Verb add_render(CLI::App& app);
Verb add_eval(CLI::App& app);
Verb add_generate(CLI::App& app);
Verb add_merge(CLI::App& app);
Verb add_adapters(CLI::App& app);
Verb add_topo(CLI::App& app);
Verb add_doctor(CLI::App& app);
/// Not for people: what `doctor` starts to measure.
Verb add_probe(CLI::App& app);
Verb add_bench(CLI::App& app);
Verb add_plan(CLI::App& app);

}  // namespace lorikeet::apps
