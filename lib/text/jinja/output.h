#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace lorikeet::text::jinja {

/// str(value): what {{ value }} writes. Characters of a text keep their origins inside containers, too.
/// Throws RenderError for values whose text is no part of the language (functions, generators).
MarkedText to_text(const Value& value);
/// repr(value)
MarkedText to_repr(const Value& value);
/// repr of a float: the shortest text that reads back equal.
std::string float_text(double value);

/// A safe text with & < > " and ' written as entities, each with the origin of its character; a text that is
/// safe already as it is.
MarkedText html_escaped(const MarkedText& text);
/// `part` as it is added to `whole`: escaped where `whole` is safe.
MarkedText escaped_for(const MarkedText& whole, const MarkedText& part);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent{};  ///< of one level; nullopt for one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// Python's json.dumps. Throws RenderError for what JSON has no form of.
MarkedText to_json(const Value& value, const JsonStyle& style);

}  // namespace lorikeet::text::jinja
