#include "data/format_spec.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data {

const std::vector<FormatSpec>& format_specs() {
  static const std::vector<FormatSpec> kSpecs{
      {Format::kAlpaca, "alpaca", {"instruction", "output"}, {"input", "system", "history"}},
      {Format::kInstruct, "instruct", {"prompt", "completion"}, {"system"}},
      {Format::kChat, "chat", {"messages"}, {"tools", "system"}, {"role", "content"}},
      {Format::kShareGpt, "sharegpt", {"conversations"}, {"tools", "system"}, {"from", "value"}},
      {Format::kText, "text", {"text"}, {}},
      {Format::kTokens, "tokens", {"input_ids"}, {"labels", "attention_mask"}},
  };
  return kSpecs;
}

const FormatSpec& spec_of(Format format) {
  return *std::find_if(format_specs().begin(), format_specs().end(),
                       [&](const FormatSpec& s) { return s.format == format; });
}

std::string key_of(const std::string& field, const Columns& columns) {
  const auto found = columns.find(field);
  return found == columns.end() ? field : found->second;
}

std::string quoted(const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  parts.reserve(names.size());
  for (const std::string& name : names) parts.push_back("'" + escape_control(name) + "'");
  return join(parts, ", ");
}

std::string keys_found(const Json& record) {
  constexpr std::size_t kShown = 12;
  std::vector<std::string> keys;
  for (const auto& [key, value] : record.object()) {
    if (keys.size() == kShown) break;
    keys.push_back(key.substr(0, 60));
  }
  if (keys.empty()) return "no keys";
  return quoted(keys) + (record.object().size() > kShown ? ", ..." : "");
}

void require_object(const Json& record, const std::string& where) {
  if (!record.is_object())
    throw Error(where + ": expected a JSON object, got " + std::string(record.kind_name()));
}

}  // namespace lorikeet::data
