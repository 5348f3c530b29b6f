#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "data/file_bytes.h"
#include "data/record_source.h"

namespace lorikeet::data {

/// What separates the fields of a CSV file: the comma; or where its first row has none outside quotes, the
/// first of these that it has: semicolons (spreadsheets write them where commas are decimal points), tabs,
/// vertical bars.
char csv_separator(std::string_view text);

/// A CSV or TSV file (RFC 4180: fields in double quotes may hold separators, newlines and doubled quotes).
/// The first row names the columns; every value is a string. Lines end with LF or CRLF; blank ones are
/// skipped, and so is a UTF-8 byte order mark.
class CsvFile final : public RecordSource {
 public:
  /// Checks the whole file. Throws Error naming the line for quotes that don't close, text beside a quoted
  /// field, a quote inside an unquoted one, rows with more or fewer fields than there are columns, columns
  /// with the same name or without one (but for the first, which is "Unnamed: 0" then, as pandas has it), a
  /// NUL byte, and a file without rows.
  CsvFile(FileBytes file, char separator);

  std::size_t size() const override { return spans_.size(); }
  std::size_t line(std::size_t i) const override { return spans_[i].line; }
  std::string where(std::size_t i) const override;
  Json parse(std::size_t i) const override;
  void release_before(std::size_t i) const override { done_.pass(text_.data() + spans_[i].offset); }
  const std::string& name() const override { return file_.name(); }

 private:
  struct Span {
    std::size_t offset;
    std::size_t line;
  };
  /// The fields of the record at `offset`, which is moved behind it, as `line` is.
  std::vector<std::string> read_record(std::size_t& offset, std::size_t& line) const;
  std::string read_quoted(std::size_t& offset, std::size_t& line) const;
  std::string place(std::size_t line) const;

  FileBytes file_;
  std::string_view text_;
  char separator_;
  std::vector<std::string> columns_;
  std::vector<Span> spans_;
  mutable PassedBytes done_;
};

}  // namespace lorikeet::data
