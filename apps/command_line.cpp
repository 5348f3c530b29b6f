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
  std::string what = error.what();
  // CLI11 reports a missing argument before an unknown one, which is more often the mistake.
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && app.remaining_size(true) > 0)
    what = CLI::ExtrasError(app.remaining(/*recurse=*/true)).what();
  log_error(escape_control(what) + "; `" + command + " --help` lists what it takes");
  return 2;
}

}  // namespace lorikeet::apps
