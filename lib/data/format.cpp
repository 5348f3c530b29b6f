#include "data/format.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "data/format_spec.h"

namespace lorikeet::data {
namespace {

std::string formats_known() {
  std::vector<std::string> lines;
  for (const FormatSpec& spec : format_specs()) {
    std::vector<std::string> fields = spec.required;
    if (!spec.of_turns.empty()) fields.back() += ": [{" + join(spec.of_turns, ", ") + "}, ...]";
    for (const std::string& field : spec.optional) fields.push_back(field + "?");
    lines.push_back(std::string(spec.name) + " {" + join(fields, ", ") + "}");
  }
  return join(lines, ", ");
}

// The formats whose required fields the row has, and which have the columns that are set.
std::vector<const FormatSpec*> matching_formats(const Json& record, const Columns& columns) {
  std::vector<const FormatSpec*> matches;
  for (const FormatSpec& spec : format_specs()) {
    const bool has_all =
        std::all_of(spec.required.begin(), spec.required.end(),
                    [&](const std::string& name) { return record.find(key_of(name, columns)) != nullptr; });
    const std::vector<std::string> fields = spec.fields();
    const bool knows_columns = std::all_of(columns.begin(), columns.end(), [&](const auto& column) {
      return std::find(fields.begin(), fields.end(), column.first) != fields.end();
    });
    if (has_all && knows_columns) matches.push_back(&spec);
  }
  return matches;
}

// Says which column of the settings the row lacks: of fields that a format needs, not of those in its turns.
std::string missing_column(const Json& record, const Columns& columns) {
  const auto is_needed = [](const std::string& name) {
    return std::any_of(format_specs().begin(), format_specs().end(), [&](const FormatSpec& spec) {
      return std::find(spec.required.begin(), spec.required.end(), name) != spec.required.end();
    });
  };
  std::vector<std::string> keys;
  for (const auto& [key, value] : record.object()) keys.push_back(key);
  for (const auto& [name, key] : columns) {
    if (record.find(key) != nullptr || !is_needed(name)) continue;
    return ". data.train.columns." + name + " names '" + escape_control(key) + "', which isn't there" +
           did_you_mean(key, keys);
  }
  return "";
}

// The one field that a row lacks to be of a format that it has others of.
std::string missing_field(const Json& record, const Columns& columns) {
  for (const FormatSpec& spec : format_specs()) {
    std::vector<std::string> lacking;
    for (const std::string& name : spec.required) {
      if (record.find(key_of(name, columns)) == nullptr) lacking.push_back(key_of(name, columns));
    }
    if (lacking.size() == 1 && spec.required.size() > 1)
      return ". A row of " + std::string(spec.name) + " has '" + escape_control(lacking[0]) + "', too";
  }
  return "";
}

// A name of data.train.columns that is no format's: a slip, or key and field the wrong way round.
std::string unknown_field(const Json& record, const Columns& columns) {
  std::vector<std::string> fields;
  for (const FormatSpec& spec : format_specs()) {
    for (std::string& field : spec.fields()) fields.push_back(std::move(field));
  }
  const auto is_field = [&](const std::string& name) {
    return std::find(fields.begin(), fields.end(), name) != fields.end();
  };
  for (const auto& [name, key] : columns) {
    if (is_field(name)) continue;
    const std::string shown = ". data.train.columns." + escape_control(name);
    if (is_field(key) && record.find(name) != nullptr)
      return shown + " is a key of the rows: write the format's field first, data.train.columns." + key +
             "=" + escape_control(name);
    return shown + " is a field of no format" + did_you_mean(name, fields);
  }
  return "";
}

}  // namespace

// A list of texts is no sign of rows: turns of a conversation may have such a key.
std::string rows_inside(const Json& record, const Columns& columns) {
  const auto is_row = [](const FormatSpec* spec) { return spec->format != Format::kText; };
  for (const auto& [key, value] : record.object()) {
    if (!value.is_array() || value.array().empty()) continue;
    const Json& first = value.array().front();
    if (!first.is_object()) continue;
    const auto formats = matching_formats(first, columns);
    if (std::none_of(formats.begin(), formats.end(), is_row)) continue;
    const std::string name = escape_control(key);
    return ". Its rows seem to lie in '" + name + "': write that list alone into a file, as `jq '.[\"" +
           name + "\"]'` does";
  }
  return "";
}

std::string_view format_name(Format format) { return spec_of(format).name; }

Format format_from_name(std::string_view name) {
  std::vector<std::string> names{"auto"};
  for (const FormatSpec& spec : format_specs()) {
    if (spec.name == name) return spec.format;
    names.emplace_back(spec.name);
  }
  throw Error("[data.train.format] expected " + join(names, ", ") + "; got '" + escape_control(name) + "'" +
              did_you_mean(name, names));
}

void check_columns(Format format, const Columns& columns) {
  const FormatSpec& spec = spec_of(format);
  const std::vector<std::string> fields = spec.fields();
  for (const auto& [name, key] : columns) {
    if (std::find(fields.begin(), fields.end(), name) != fields.end()) continue;
    throw Error("[data.train.columns] format " + std::string(spec.name) + " has the fields " +
                quoted(fields) + ", got '" + escape_control(name) + "'" + did_you_mean(name, fields));
  }
}

Format detect_format(const Json& record, const Columns& columns, const std::string& where) {
  require_object(record, where);
  std::vector<const FormatSpec*> matches = matching_formats(record, columns);
  const bool preferences = record.find("chosen") != nullptr && record.find("rejected") != nullptr;
  // Alpaca files often carry the rendered prompt as "text" beside the fields that it was made from.
  if (matches.size() == 2 && matches[0]->format == Format::kAlpaca && matches[1]->format == Format::kText)
    matches.pop_back();
  if (matches.size() == 1 && !preferences) return matches[0]->format;
  std::string problem = "no known format", hint;
  if (preferences) {
    problem = "preference pairs (chosen, rejected), which aren't supported here";
  } else if (!matches.empty()) {
    std::vector<std::string> names;
    names.reserve(matches.size());
    for (const FormatSpec* spec : matches) names.emplace_back(spec->name);
    problem = "more than one format (" + join(names, ", ") + ")";
  } else {
    hint = unknown_field(record, columns);
    if (hint.empty()) hint = missing_column(record, columns);
    if (hint.empty()) hint = missing_field(record, columns);
    hint += rows_inside(record, columns);
  }
  throw Error(
      where + ": found " + keys_found(record) + ", which fits " + problem + "; known: " + formats_known() +
      ". Set data.train.format, and data.train.columns where the file's keys have other names" + hint);
}

const std::vector<std::string>& optional_fields(Format format) { return spec_of(format).optional; }

bool has_instructions(Format format) { return format == Format::kAlpaca || format == Format::kInstruct; }

bool needs_template(Format format) { return format != Format::kText && format != Format::kTokens; }

}  // namespace lorikeet::data
