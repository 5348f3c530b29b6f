#pragma once

#include <CLI/CLI.hpp>

namespace lorikeet::apps {

/// The exit code of a command line that CLI11 ended: 0 where it asked for help or the version, which are
/// printed; else 2, with one line that says what is wrong and where the options are listed.
int end_of_parsing(const CLI::App& app, const CLI::ParseError& error);

}  // namespace lorikeet::apps
