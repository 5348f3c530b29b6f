#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/file_bytes.h"
#include "data/record_source.h"

namespace lorikeet::data {

/// A JSON file cut into its records without parsing them: JSON lines (one object a line, blank lines skipped)
/// or one JSON array, as the first character says; either packed (see FileBytes). A UTF-8 byte order
/// mark is skipped. open_records opens the other kinds.
class RecordFile final : public RecordSource {
 public:
  /// `file` is JSON as file_kind tells. Throws Error when it holds no record or the array's brackets and
  /// commas aren't right.
  explicit RecordFile(FileBytes file);

  std::size_t size() const override { return spans_.size(); }
  /// 0 in an array.
  std::size_t line(std::size_t i) const override { return is_array_ ? 0 : spans_[i].line; }
  /// For an array "[data] row 3 of train.json", with the line too where the array has several: "[data] row 3
  /// (line 17) of train.json".
  std::string where(std::size_t i) const override;
  Json parse(std::size_t i) const override;
  void release_before(std::size_t i) const override { done_.pass(text_.data() + spans_[i].offset); }
  const std::string& name() const override { return file_.name(); }

 private:
  // Kept small: there may be millions. A record is shorter than 4 GB (see add_span), and a line number that
  // is larger is an error's place in a file of more lines than anybody counts.
  struct Span {
    std::size_t offset;
    std::uint32_t length;
    std::uint32_t line;
  };
  void add_span(std::size_t offset, std::size_t length, std::size_t line);
  void split_lines();
  void split_array();
  void refuse_several_lines(std::size_t i) const;
  std::string row_place(std::size_t row, std::size_t line) const;

  FileBytes file_;
  std::string_view text_;
  std::vector<Span> spans_;
  mutable PassedBytes done_;
  bool is_array_ = false;
  bool one_line_ = false;  // no two rows begin on different lines
};

}  // namespace lorikeet::data
