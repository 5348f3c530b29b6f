#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/format.h"

// The formats as a table, and what readers of rows say of a row's keys. For format.cpp and parse_row.cpp.
namespace lorikeet::data {

struct FormatSpec {
  Format format;
  std::string_view name;
  std::vector<std::string> required;  ///< fields
  std::vector<std::string> optional;
  std::vector<std::string> of_turns{};  ///< of each turn in the row's one field: the role's and the content's

  /// All names that data.train.columns may give other keys.
  std::vector<std::string> fields() const {
    std::vector<std::string> all = required;
    all.insert(all.end(), optional.begin(), optional.end());
    all.insert(all.end(), of_turns.begin(), of_turns.end());
    return all;
  }
};

const std::vector<FormatSpec>& format_specs();
const FormatSpec& spec_of(Format format);

/// The file's key of a format's field.
std::string key_of(const std::string& field, const Columns& columns);

/// "'a', 'b'".
std::string quoted(const std::vector<std::string>& names);

/// The row's keys, the first dozen, for errors.
std::string keys_found(const Json& record);

/// Throws Error, begun with `where`, for anything else than an object.
void require_object(const Json& record, const std::string& where);

}  // namespace lorikeet::data
