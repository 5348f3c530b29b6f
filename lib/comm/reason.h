#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace lorikeet::comm {

/// The first line of an exception's message, without the stack trace that libtorch adds.
inline std::string reason(const std::exception& error) {
  const auto* of_libtorch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_libtorch != nullptr ? of_libtorch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace lorikeet::comm
