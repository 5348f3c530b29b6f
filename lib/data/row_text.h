#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lorikeet::data {

/// A text with columns' names in braces, "Translate to {language}: {text}", that is filled in for each row. A
/// brace itself is doubled; "{a.b}" is the member b of the struct a, unless a column is called "a.b".
class RowText {
 public:
  /// `setting` names the setting that `pattern` is the value of, for errors. Throws Error for braces that
  /// don't match, names that are empty, and a text that names no column.
  RowText(std::string_view pattern, const std::string& setting);

  /// The text for `record`, an object. Strings go in as they are, numbers and booleans as JSON has them.
  /// Throws Error starting with `where` when a column is absent, null, or a list or struct.
  std::string fill(const Json& record, const std::string& where) const;

 private:
  struct Part {
    std::string text;  ///< what is written, or the column's name
    bool is_column = false;
  };
  std::vector<Part> parts_;
  std::string setting_;
};

}  // namespace lorikeet::data
