#include <filesystem>
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
  command->add_option("target", o->target, "the file to write, or a folder for it")
      ->required()
      ->transform(home_path());
  command->add_flag("--force", o->force, "overwrite the file if it is there");
  return {command, [o] {
            const std::filesystem::path config = find_config(o->name);
            std::filesystem::path target = o->target;
            if (std::filesystem::is_directory(target)) target /= config.filename();
            if (!o->force && std::filesystem::exists(target))
              throw Error("[cp] '" + target.string() + "' is there already; choose another name, or --force");
            if (const auto folder = target.parent_path();
                !folder.empty() && !std::filesystem::is_directory(folder))
              throw Error("[cp] '" + folder.string() + "' is no folder; make it first");
            write_file_atomic(target, read_file(config, 1U << 20));
            std::cout << target.string() << "\n";
            return 0;
          }};
}

}  // namespace lorikeet::apps
