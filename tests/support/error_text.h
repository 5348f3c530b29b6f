#pragma once

#include <string>

#include "base/error.h"

namespace lorikeet::test {

/// The text of the Error that `action` throws, or "no error".
template <typename Action>
std::string error_text(Action action, ErrorKind kind = ErrorKind::kUsage) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind() == kind ? error.what() : "another kind of error: " + std::string(error.what());
  }
  return "no error";
}

}  // namespace lorikeet::test
