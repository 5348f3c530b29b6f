#pragma once

#include <string>

#include "data/format.h"
#include "data/options.h"
#include "data/record_source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lorikeet::data {

/// What a file's rows are read as, before any is tokenised.
struct RowPlan {
  Format format = Format::kText;
  Columns columns{};  ///< as parse_row takes them
  std::string format_description;
  text::ChosenTemplate chat_template;  ///< empty where rows need none
};

/// Settles format, columns and template for `file`, which open_source opened with the same options: the
/// format by its first rows when `options.format` is auto. Throws Error for rows of no known format or of
/// several, and for settings that don't go together.
RowPlan plan_rows(const RecordSource& file, const DataOptions& options, const text::Tokenizer& tokenizer);

}  // namespace lorikeet::data
