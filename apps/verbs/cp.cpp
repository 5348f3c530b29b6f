#include <iostream>
#include <memory>

#include "apps/config_files.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/verbs.h"
#include "base/error.h"
#include "base/file.h"

namespace lorikeet::apps {

Verb add_cp(CLI::App& app) {
  struct Options {
    std::string name, target;
    bool force = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("cp", "Copies a ready-made config to a file of your own.");
  command->add_option("name", o->name, "a name that `lorikeet ls` lists")->required();
  command->add_option("target", o->target, "the file to write")->required()->transform(home_path());
  command->add_flag("--force", o->force, "overwrite the file if it is there");
  return {command, [o] {
            const std::string text = read_file(find_config(o->name), 1U << 20);
            if (!o->force && std::filesystem::exists(o->target)) {
              throw Error("[cp] '" + o->target + "' is there already; choose another name, or --force");
            }
            write_file_atomic(o->target, text);
            std::cout << o->target << "\n";
            return 0;
          }};
}

}  // namespace lorikeet::apps
