#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace lorikeet::comm {

/// What an exception says, without the stack trace that libtorch's carry; its first line alone.
inline std::string reason(const std::exception& error) {
  const auto* of_libtorch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_libtorch != nullptr ? of_libtorch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace lorikeet::comm
