#include "apps/command_line.h"

#include <string>

#include "base/log.h"
#include "base/strings.h"

namespace lorikeet::apps {

int end_of_parsing(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  std::string command = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  log_error(escape_control(error.what()) + "; `" + command + " --help` lists what it takes");
  return 2;
}

}  // namespace lorikeet::apps
