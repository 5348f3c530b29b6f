#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace lorikeet::data {

/// A data file cut into its records without parsing them: JSON lines (one object a line, blank lines skipped)
/// or one JSON array, which is told by the first character; either gzipped, told by the magic number. A UTF-8
/// byte order mark is skipped. Immutable; records may be parsed by several threads.
/// Other kinds of files (CSV, Parquet, plain text, ...) are refused by name, see file_kind.h.
class RecordFile {
 public:
  /// Throws Error when the file can't be read, is empty, holds no record, isn't UTF-8 (naming the line),
  /// isn't well-formed gzip, or the array's brackets and commas aren't right.
  explicit RecordFile(const std::filesystem::path& path);

  std::size_t size() const { return spans_.size(); }

  /// Line of the file (from 1) on which record `i` begins, where a line is a record; 0 in an array, whose
  /// records are counted as rows.
  std::size_t line(std::size_t i) const { return is_array_ ? 0 : spans_[i].line; }

  /// How errors about record `i` begin: "[data] line 17 of train.jsonl", or for an array "[data] row 3 of
  /// train.json", with the line too where the array has several: "[data] row 3 (line 17) of train.json".
  std::string where(std::size_t i) const;

  /// Parses record `i`; throws Error naming the line if it isn't valid JSON.
  Json parse(std::size_t i) const;

  /// The file's name without its folder.
  const std::string& name() const { return name_; }
  /// The bytes as they lie on disk.
  std::string_view stored_bytes() const { return map_->bytes(); }

 private:
  struct Span {
    std::size_t offset;
    std::size_t length;
    std::size_t line;
  };
  void check_utf8() const;
  void split_lines();
  void split_array();
  std::size_t line_of(std::size_t offset) const;
  std::string row_place(std::size_t row, std::size_t line) const;

  std::string name_;
  std::unique_ptr<MappedFile> map_;
  std::string unpacked_;  // of a gzip file
  std::string_view text_;
  std::vector<Span> spans_;
  bool is_array_ = false;
  bool one_line_ = false;  // no two rows begin on different lines
};

}  // namespace lorikeet::data
