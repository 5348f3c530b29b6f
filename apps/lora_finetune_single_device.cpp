#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/config_files.h"
#include "apps/guard.h"
#include "apps/hub_paths.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/version.h"
#include "config/config.h"
#include "recipes/interrupt.h"
#include "recipes/lora_finetune.h"

namespace {

// torchrun was asked for several processes. Each would train by itself, on machines without a common file
// system also to its end.
void warn_of_other_processes() {
  const char* value = std::getenv("WORLD_SIZE");
  const std::string size = value == nullptr ? "1" : value;
  if (size.empty() || size == "1") return;
  lorikeet::log_warning("WORLD_SIZE is " + lorikeet::escape_control(size) +
                        ", but this program trains alone: for a run on several devices start "
                        "lora_finetune_distributed");
}

int run(int argc, char** argv) {
  const lorikeet::recipes::InterruptExit interrupts;
  lorikeet::apps::outlive_stderr();
  CLI::App app(
      "Fine-tunes a Hugging Face checkpoint with LoRA on one device and writes a PEFT adapter.\n\n"
      "  lora_finetune_single_device --config recipes/configs/quickstart/tiny_lora.yaml lora.rank=8\n\n"
      "`lorikeet config` prints every setting with its default. Run again with the same settings, an "
      "unfinished run "
      "goes on from its last checkpoint. Exit codes: 0 done, 1 run failed, 2 bad usage or input, 3 "
      "environment "
      "unfit, 130 interrupted, what was trained is saved.",
      "lora_finetune_single_device");
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
  auto settings = lorikeet::config::load_settings(lorikeet::apps::find_config(config), overrides);
  lorikeet::apps::use_local_paths(settings);
  const auto& distributed = settings.distributed;
  const lorikeet::config::DistributedSettings usual;
  if (distributed.strategy != usual.strategy || distributed.shard_degree || distributed.interface ||
      distributed.watchdog_seconds != usual.watchdog_seconds || distributed.verify) {
    lorikeet::log_info("this program runs on one device: the section 'distributed' is ignored");
  }
  warn_of_other_processes();
  lorikeet::recipes::InterruptExit::leave_no_trace_in(settings.checkpoint.output_dir);
  lorikeet::recipes::lora_finetune(settings);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lorikeet::apps::guarded([&] { return run(argc, argv); });
}
