#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/home.h"

namespace lorikeet::apps {

/// For an option that is a path: a leading ~ is the home folder, also where the shell doesn't see it
/// (`--data=~/rows.jsonl`). To be given to CLI::Option::transform.
inline CLI::Validator home_path() {
  const auto expand = [](std::string& text) {
    text = expand_home(text);
    return std::string();
  };
  return {expand, ""};
}

}  // namespace lorikeet::apps
