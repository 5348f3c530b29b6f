#include <iostream>
#include <memory>

#include "apps/config_files.h"
#include "apps/verbs/verbs.h"
#include "config/config.h"

namespace lorikeet::apps {

Verb add_config(CLI::App& app) {
  struct Options {
    std::string file;
    std::vector<std::string> overrides;
    bool markdown = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "config",
      "Without a file: every setting with its type, default and meaning. With one: the resolved settings.");
  command->add_option("file", o->file, "a config file, or a name that `lorikeet ls` lists");
  command->add_option("overrides", o->overrides, "a.b=value sets a setting, ~a.b drops it to its default");
  command->add_flag("--markdown", o->markdown, "the reference as Markdown");
  return {command, [o] {
            if (!o->file.empty()) {
              std::cout << config::to_yaml(config::load_settings(find_config(o->file), o->overrides));
            } else {
              std::cout << (o->markdown ? config::reference_markdown() : config::help_text());
            }
            return 0;
          }};
}

}  // namespace lorikeet::apps
