#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/file_bytes.h"

namespace lorikeet::data {

/// How the rows of a data file are written.
enum class FileKind : std::uint8_t { kJson, kCsv, kTsv, kParquet, kArrow };

/// "JSON", "CSV", "TSV", "Parquet" or "Arrow".
std::string_view kind_name(FileKind kind);

/// The kind of a file by its content, and where that leaves a choice by its name's ending. Text whose first
/// line is or begins as JSON is JSON, whatever the ending. Reads all of a text. Throws Error, which says what
/// to do, for a zip archive (a spreadsheet), a Git LFS pointer, Feather's first version, text that isn't
/// UTF-8, no text at all, and plain text.
FileKind file_kind(const FileBytes& file);

/// True if files of this name hold rows by their ending: .jsonl, .ndjson, .json, .csv, .tsv, .parquet,
/// .arrow, .feather, also with .gz or .zst behind.
bool is_data_file_name(const std::string& name);

}  // namespace lorikeet::data
