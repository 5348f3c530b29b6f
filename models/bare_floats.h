#pragma once

#include <string>
#include <string_view>

namespace lorikeet::models {

/// JSON text with an object in place of each number that JSON doesn't know: Python's json writes these as
/// bare words, Infinity, -Infinity and NaN, as do transformers before version 5, which itself writes
/// {"__float__": "Infinity"}. Words inside of strings stay, as does all else, whether or not it is JSON.
std::string name_bare_floats(std::string_view text);

}  // namespace lorikeet::models
