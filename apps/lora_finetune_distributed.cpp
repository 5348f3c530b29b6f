#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/config_files.h"
#include "apps/guard.h"
#include "apps/hub_paths.h"
#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "comm/board.h"
#include "comm/placement.h"
#include "config/config.h"
#include "recipes/interrupt.h"
#include "recipes/lora_finetune.h"

namespace {

// The launcher learns from the board why this rank ends.
lorikeet::config::Settings load(const std::string& config, const std::vector<std::string>& overrides,
                                const lorikeet::comm::Placement& placement) {
  try {
    auto settings = lorikeet::config::load_settings(lorikeet::apps::find_config(config), overrides);
    lorikeet::apps::use_local_paths(settings);
    return settings;
  } catch (const lorikeet::Error& error) {
    if (!placement.alone()) {
      lorikeet::comm::BoardWriter board(placement.local_rank, placement.local_size, 0);
      board.phase("config");
      board.failed(error.what(), error.exit_code(), /*consequence=*/false);
    }
    throw;
  }
}

// Of several processes one speaks: the launcher, where there is ours, else the first.
void choose_speaker(const lorikeet::comm::Placement& placement) {
  if (placement.rank != 0) lorikeet::recipes::InterruptExit::be_silent();
  if (placement.launcher == "lorikeet run") lorikeet::recipes::InterruptExit::end_by_signal();
}

int run(int argc, char** argv) {
  const lorikeet::recipes::InterruptExit interrupts;
  lorikeet::apps::outlive_stderr();
  CLI::App app(
      "One of the processes that fine-tune a checkpoint with LoRA together, one a device. They compute what "
      "lora_finetune_single_device does, from the same config, to rounding.\n\n"
      "  lorikeet run --nproc 4 lora_finetune_distributed --config run.yaml\n\n"
      "starts and watches four on this machine. On several machines torchrun (with --no-python), srun or "
      "mpirun start them: rank and store are read from their variables. Alone it is a run of one process. "
      "Exit codes: 0 done, 1 run failed, 2 bad usage or input, 3 environment unfit, 130 interrupted, what "
      "was trained is saved.",
      "lora_finetune_distributed");
  app.set_version_flag("--version", std::string(lorikeet::kVersion));
  std::string config;
  std::vector<std::string> overrides;
  app.add_option("--config", config, "the run's settings: a YAML file, or a name that `lorikeet ls` lists")
      ->required()
      ->type_name("FILE");
  app.add_option("overrides", overrides, "a.b=value sets a setting, ~a.b drops it back to its default");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return lorikeet::apps::end_of_parsing(app, error);
  }
  const auto placement = lorikeet::comm::read_placement(lorikeet::comm::process_environment());
  choose_speaker(placement);
  if (placement.alone()) {
    lorikeet::log_info(
        "this is the only process, so that the section 'distributed' is ignored; for several: "
        "lorikeet run --nproc N lora_finetune_distributed");
  }
  const auto settings = load(config, overrides, placement);
  if (placement.rank == 0)
    lorikeet::recipes::InterruptExit::leave_no_trace_in(settings.checkpoint.output_dir);
  lorikeet::recipes::lora_finetune(settings, placement);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lorikeet::apps::guarded([&] { return run(argc, argv); });
}
