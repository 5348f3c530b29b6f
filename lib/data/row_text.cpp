#include "data/row_text.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data {
namespace {

const Json* find_column(const Json& record, std::string_view name) {
  if (const Json* found = record.find(name)) return found;
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const Json* outer = record.find(name.substr(0, dot));
  return outer == nullptr || !outer->is_object() ? nullptr : find_column(*outer, name.substr(dot + 1));
}

std::string columns_of(const Json& record) {
  constexpr std::size_t kShown = 12;
  std::vector<std::string> names;
  for (const auto& [name, value] : record.object())
    if (names.size() < kShown) names.push_back("'" + escape_control(name.substr(0, 60)) + "'");
  return names.empty() ? "no columns" : join(names, ", ") + (record.object().size() > kShown ? ", ..." : "");
}

}  // namespace

RowText::RowText(std::string_view pattern, const std::string& setting) : setting_(setting) {
  const auto fail = [&](const std::string& what) {
    return Error("[" + setting + "] " + what + ", in '" + escape_control(pattern.substr(0, 200)) + "'");
  };
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if ((c == '{' || c == '}') && i + 1 < pattern.size() && pattern[i + 1] == c) {
      text += c;
      ++i;
    } else if (c == '}') {
      throw fail("expected '{' before '}'; a brace itself is written twice");
    } else if (c == '{') {
      const std::size_t end = pattern.find_first_of("{}", i + 1);
      if (end == std::string_view::npos || pattern[end] != '}')
        throw fail("expected '}' behind '{' and a column's name; a brace itself is written twice");
      if (end == i + 1) throw fail("expected a column's name between the braces");
      parts_.push_back({std::move(text)});
      parts_.push_back({std::string(pattern.substr(i + 1, end - i - 1)), true});
      text.clear();
      i = end;
    } else {
      text += c;
    }
  }
  if (parts_.empty()) throw fail("expected at least one column's name in braces");
  parts_.push_back({std::move(text)});
}

std::string RowText::fill(const Json& record, const std::string& where) const {
  if (!record.is_object())
    throw Error(where + ": expected a JSON object, got " + std::string(record.kind_name()));
  std::string out;
  for (const Part& part : parts_) {
    if (!part.is_column) {
      out += part.text;
      continue;
    }
    const Json* value = find_column(record, part.text);
    const std::string name = "'" + escape_control(part.text) + "'";
    if (value == nullptr) {
      throw Error(where + ": expected column " + name + ", which " + setting_ + " names, found " +
                  columns_of(record));
    }
    if (value->is_string()) {
      out += value->string();
    } else if (value->is_number() || value->is_bool()) {
      out += value->dump();
    } else {
      throw Error(where + ": expected column " + name + ", which " + setting_ +
                  " names, to be text or a number, got " + std::string(value->kind_name()));
    }
  }
  return out;
}

}  // namespace lorikeet::data
