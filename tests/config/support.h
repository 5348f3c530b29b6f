#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"

namespace lorikeet::test {

/// What the one required setting needs, to be put before the text of a test.
inline const std::string kModel = "model: {path: base}\n";

/// The settings of kModel and `text`, in "run.yaml".
inline config::Settings parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return config::parse_settings(kModel + text, "run.yaml", overrides);
}

/// The text of the error that kModel and `text` give, or "no error".
inline std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse(text, overrides);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kUsage ? error.what() : "another kind of error";
  }
  return "no error";
}

}  // namespace lorikeet::test
