#include <iostream>

#include "apps/config_files.h"
#include "apps/verbs/verbs.h"

namespace lorikeet::apps {

Verb add_ls(CLI::App& app) {
  CLI::App* command = app.add_subcommand("ls", "Lists the recipes and their ready-made configs.");
  return {command, [] {
            std::cout << "lora_finetune_single_device, lora_finetune_distributed\n";
            for (const std::string& name : config_names()) std::cout << "  " << name << "\n";
            return 0;
          }};
}

}  // namespace lorikeet::apps
