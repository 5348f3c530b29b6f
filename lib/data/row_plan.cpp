#include "data/row_plan.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/counted.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "data/parse_row.h"
#include "data/presets.h"

namespace lorikeet::data {
namespace {

constexpr std::size_t kRowsLookedAt = 8;

// Format and columns of the rows that reshape_rows leaves.
RowOptions shape_after(const RowOptions& given) {
  RowOptions options = resolve_preset(given);
  if (!options.prompt) return options;
  if (options.format != "auto" && options.format != "instruct")
    throw Error("[data.train.prompt] makes rows of the format instruct, got data.train.format " +
                options.format);
  options.format = "instruct";
  options.columns.clear();
  return options;
}

// A mistyped key of a field that rows may lack would leave the field out of all rows.
void warn_of_absent_columns(const RecordSource& file, const RowPlan& plan) {
  for (const std::string& field : optional_fields(plan.format)) {
    const auto column = plan.columns.find(field);
    if (column == plan.columns.end()) continue;
    bool found = false;
    const std::size_t looked_at = std::min(file.size(), kRowsLookedAt);
    for (std::size_t i = 0; i < looked_at; ++i)
      found = found || file.parse(i).find(column->second) != nullptr;
    if (found) continue;
    log_warning("[data.train.columns] " + field + ": no row of " + file.name() + " has a key '" +
                escape_control(column->second) + "' (" + counted(looked_at, "row") + " looked at)");
  }
}

bool has_content(const Json* value) {
  if (value == nullptr || value->is_null()) return false;
  return value->is_array() ? !value->array().empty() : !value->is_string() || !value->string().empty();
}

// What a text refers to and nobody reads: the model would learn to answer without it.
void warn_of_media(const RecordSource& file) {
  std::set<std::string> found;
  for (std::size_t i = 0; i < std::min(file.size(), kRowsLookedAt); ++i) {
    const Json row = file.parse(i);
    if (!row.is_object()) continue;
    for (const char* column : {"image", "images", "audio", "audios", "video", "videos"})
      if (has_content(row.find(column))) found.insert(column);
  }
  for (const std::string& column : found)
    log_warning("[data] " + file.name() + " has rows with '" + column +
                "', of which nothing is read: they are trained on as text alone (docs/data.md)");
}

}  // namespace

RowPlan plan_rows(const RecordSource& file, const DataOptions& given, const text::Tokenizer& tokenizer) {
  DataOptions options = given;
  static_cast<RowOptions&>(options) = shape_after(given);
  RowPlan plan;
  plan.columns = options.columns;
  if (options.format == "auto") {
    plan.format = detect_format(file.parse(0), options.columns, file.where(0));
    for (std::size_t i = 1; i < std::min(file.size(), kRowsLookedAt); ++i) {
      const Format other = detect_format(file.parse(i), options.columns, file.where(i));
      if (other == plan.format) continue;
      throw Error(file.where(i) + ": fits format " + std::string(format_name(other)) +
                  ", the rows before it " + std::string(format_name(plan.format)) +
                  "; set data.train.format");
    }
    plan.format_description = std::string(format_name(plan.format)) + " (found)";
  } else {
    plan.format = format_from_name(options.format);
    plan.format_description =
        std::string(format_name(plan.format)) +
        (given.preset.empty() ? " (configured)" : " (of the preset " + given.preset + ")");
  }
  check_columns(plan.format, options.columns);
  warn_of_absent_columns(file, plan);
  warn_of_media(file);
  if (needs_template(plan.format)) {
    // Rows of another format than the configured one are the first thing to say.
    parse_row(file.parse(0), plan.format, options.columns, file.where(0));
    plan.chat_template = text::choose_chat_template(options.chat_template, tokenizer.templates(),
                                                    has_instructions(plan.format), options.template_date);
  }
  return plan;
}

}  // namespace lorikeet::data
