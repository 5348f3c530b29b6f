#include <iostream>

#include "apps/config_files.h"
#include "apps/recipe_names.h"
#include "apps/verbs/verbs.h"
#include "base/strings.h"

namespace lorikeet::apps {

Verb add_ls(CLI::App& app) {
  CLI::App* command = app.add_subcommand("ls", "Lists the recipes and their ready-made configs.");
  return {command, [] {
            std::cout << join(recipe_names(), ", ") << "\n";
            for (const std::string& name : config_names()) std::cout << "  " << name << "\n";
            return 0;
          }};
}

}  // namespace lorikeet::apps
