#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

// Changes of single members of a JSON file's text. All else stays byte for byte: reading and writing a file
// again would change numbers such as tokenizers' model_max_length of 31 digits.
namespace lorikeet {

/// The text of a JSON object with the member at `path` set: the last name's, in the object that the names
/// before it lead to, which are made where they are absent. `json` must be the text of a valid object; so
/// must be the members on the way (throws Error).
std::string with_member(const std::string& json, const std::vector<std::string>& path, const Json& value);

/// The text of a JSON object without its member `key`, where it has one.
std::string without_member(const std::string& json, const std::string& key);

/// The text of a JSON object with `items` behind those of its member `key`, a list, which is made where it is
/// absent.
std::string with_items(const std::string& json, const std::string& key, const std::vector<Json>& items);

}  // namespace lorikeet
