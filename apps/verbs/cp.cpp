#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>

#include "apps/config_files.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/verbs.h"
#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"

namespace lorikeet::apps {
namespace {

constexpr std::size_t kMostBytes = 1U << 20;

// Throws Error where it can't be known what is there: a link to itself, a folder that mustn't be entered.
std::filesystem::file_status status_of(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::status_known(status)) return status;
  throw Error("[cp] expected a file that can be written, or a folder, got '" + escape_control(path.string()) +
              "': " + error.message() + "; choose another name");
}

}  // namespace

Verb add_cp(CLI::App& app) {
  struct Options {
    std::string name, target;
    bool force = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("cp", "Copies a ready-made config to a file of your own.");
  command->add_option("name", o->name, "a name that `lorikeet ls` lists")->required();
  command->add_option("target", o->target, "the file to write, a folder for it, or - for stdout")
      ->required()
      ->transform(home_path());
  command->add_flag("--force", o->force, "overwrite the file if it is there");
  return {command, [o] {
            const std::filesystem::path config = find_config(o->name);
            if (o->target == "-") {
              std::cout << read_file(config, kMostBytes);
              return 0;
            }
            std::filesystem::path target = o->target;
            if (std::filesystem::is_directory(status_of(target))) target /= config.filename();
            if (std::filesystem::exists(status_of(target)) && !o->force)
              throw Error("[cp] '" + target.string() + "' is there already; choose another name, or --force");
            if (const auto folder = target.parent_path();
                !folder.empty() && !std::filesystem::is_directory(status_of(folder)))
              throw Error("[cp] '" + folder.string() + "' is no folder; make it first");
            write_file_atomic(target, read_file(config, kMostBytes));
            std::cout << target.string() << "\n";
            return 0;
          }};
}

}  // namespace lorikeet::apps
