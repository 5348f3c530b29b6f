#pragma once

#include <string>
#include <string_view>

// Kinds of data files that aren't read: recognised by their content, where that leaves a choice by the name's
// ending, so that the error can say how to convert them.
namespace lorikeet::data {

/// Throws Error naming the kind, and how to convert it to JSON lines, if `bytes` are a Parquet or Arrow file,
/// a zip archive (a spreadsheet), or a Git LFS pointer. `name` is the file's, for the error.
void require_no_other_binary_kind(std::string_view bytes, const std::string& name);

/// The same for text (UTF-8, not blank) that isn't JSON: CSV, TSV or plain text. Text whose first line is or
/// begins as JSON passes, whatever the file's ending.
void require_no_other_text_kind(std::string_view text, const std::string& name);

}  // namespace lorikeet::data
