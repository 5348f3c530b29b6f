#include <iostream>
#include <memory>

#include "apps/config_files.h"
#include "apps/verbs/verbs.h"
#include "config/config.h"
#include "precision/policy.h"

namespace lorikeet::apps {

Verb add_validate(CLI::App& app) {
  struct Options {
    std::string file;
    std::vector<std::string> overrides;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "validate", "Checks a config file with overrides: all problems at once, nothing is read or written.");
  command->add_option("file", o->file, "a config file, or a name that `lorikeet ls` lists")->required();
  command->add_option("overrides", o->overrides, "a.b=value sets a setting, ~a.b drops it to its default");
  return {command, [o] {
            precision::resolve(config::load_settings(find_config(o->file), o->overrides).precision);
            std::cout << "valid\n";
            return 0;
          }};
}

}  // namespace lorikeet::apps
