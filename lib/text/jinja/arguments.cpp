#include "text/jinja/functions.h"

namespace lorikeet::text::jinja {

const Value* ArgumentReader::maybe(std::string_view name) {
  const Value* found = nullptr;
  for (const auto& [given, value] : arguments_.named)
    if (given == name) found = &value;
  if (found != nullptr) ++named_;
  if (at_ < arguments_.positional.size()) {
    if (found != nullptr) throw RenderError(function_ + ": '" + std::string(name) + "' is given twice");
    return &arguments_.positional[at_++];
  }
  return found;
}

const Value& ArgumentReader::required(std::string_view name) {
  if (const Value* value = maybe(name)) return *value;
  throw RenderError(function_ + ": the argument '" + std::string(name) + "' is missing");
}

bool ArgumentReader::flag(std::string_view name, bool fallback) {
  const Value* value = maybe(name);
  return value == nullptr ? fallback : value->truth();
}

std::int64_t ArgumentReader::integer(std::string_view name, std::int64_t fallback) {
  const Value* value = maybe(name);
  return value == nullptr ? fallback : value->integer();
}

void ArgumentReader::finish() const {
  if (at_ < arguments_.positional.size())
    throw RenderError(function_ + ": got " + std::to_string(arguments_.positional.size()) +
                      " arguments, more than are supported");
  if (named_ < arguments_.named.size())
    throw RenderError(function_ + ": the argument '" + arguments_.named.back().first + "' isn't supported");
}

}  // namespace lorikeet::text::jinja
