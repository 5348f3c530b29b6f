#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lorikeet::data {

/// What a row of a data file looks like. Fields, those of turns too, are found under these keys, or those
/// that `columns` gives. A turn may say whether it is trained on: "train" (true or false), "weight" or
/// "loss_weight" (0 or 1).
enum class Format : std::uint8_t {
  kAlpaca,    ///< {"instruction", "input", "system", "history" (optional), "output"}
  kInstruct,  ///< {"prompt", "completion", "system" (optional)}
  kChat,      ///< {"messages": [{"role", "content", ...}, ...], "tools", "system" (optional)}
  kShareGpt,  ///< {"conversations": [{"from", "value", ...}, ...], "tools", "system" (optional)}
  kText,      ///< {"text"}
  kTokens,    ///< {"input_ids", "labels" (optional, -100 for no loss), "attention_mask" (optional)}
};

std::string_view format_name(Format format);

/// The format of a name; throws Error listing the names.
Format format_from_name(std::string_view name);

/// Field names of the format -> keys of the file.
using Columns = std::map<std::string, std::string>;

/// Throws Error if `columns` names a field that `format` doesn't have.
void check_columns(Format format, const Columns& columns);

/// The one format whose required fields `record` (the file's first row) has, read through `columns`.
/// Throws Error listing keys found and formats known when there is none or more than one.
Format detect_format(const Json& record, const Columns& columns, const std::string& where);

/// A sentence for errors about a file that wraps its rows, such as {"data": [{...}, ...]}, and so is read as
/// one: the key that they seem to lie in, and what to do. "" where `record` seems to be no such file.
std::string rows_inside(const Json& record, const Columns& columns);

/// Names of the fields that a row of the format may lack.
const std::vector<std::string>& optional_fields(Format format);

/// True if rows of the format are an instruction and an answer (alpaca, instruct).
bool has_instructions(Format format);

/// True if rows of the format go through a prompt template (all but text and tokens).
bool needs_template(Format format);

}  // namespace lorikeet::data
