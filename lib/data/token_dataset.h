#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::data {

/// Examples under construction: all sequences end to end.
struct TokenRows {
  std::vector<std::int64_t> ends;          ///< [N], sequence i is [ends[i - 1], ends[i])
  std::vector<std::int64_t> source_rows;   ///< [N], the file's row that each came from, from 0
  std::vector<std::int64_t> source_lines;  ///< [N], the line on which that row begins, from 1; 0 in an array
  std::vector<std::int32_t> ids;           ///< [T]
  std::vector<std::int32_t> labels;        ///< [T]

  std::size_t size() const { return ends.size(); }
  /// Adds one sequence; `labels` as long as `ids`.
  void add(std::span<const std::int32_t> sequence_ids, std::span<const std::int32_t> sequence_labels,
           std::int64_t source_row, std::int64_t source_line);
  /// Adds all of `other` behind.
  void append(const TokenRows& other);
};

/// "No loss here", as in Hugging Face's data sets.
inline constexpr std::int32_t kNoLabel = -100;

/// Number of targets after the shift inside one sequence: labels[1:] that are not kNoLabel.
std::int64_t count_targets(std::span<const std::int32_t> labels);

/// Tokenised examples, immutable and cheap to copy (copies share the tokens). Tokens lie in memory or in a
/// mapped cache file.
class TokenDataset {
 public:
  TokenDataset() = default;

  /// Examples of `rows`. The fingerprint is the sha256 of the content.
  explicit TokenDataset(TokenRows rows);

  std::size_t size() const { return chosen_ ? chosen_->size() : count_; }
  std::span<const std::int32_t> ids(std::size_t i) const { return sequence(ids_, i); }
  /// Unshifted: labels(i)[t] is ids(i)[t], or kNoLabel.
  std::span<const std::int32_t> labels(std::size_t i) const { return sequence(labels_, i); }
  std::int64_t length(std::size_t i) const { return static_cast<std::int64_t>(ids(i).size()); }
  /// Targets after the shift inside the sequence (see count_targets).
  std::int64_t label_count(std::size_t i) const { return label_counts_->at(at(i)); }
  /// The row of the source file (from 0), and its line (from 1; 0 where the file is an array).
  std::int64_t source_row(std::size_t i) const { return source_rows_[at(i)]; }
  std::int64_t source_line(std::size_t i) const { return source_lines_[at(i)]; }

  /// Where people find examples in the source file: "lines 17, 20", in an array "rows 3, 4" (from 1).
  std::string source_places(std::span<const std::size_t> examples) const;

  std::int64_t total_tokens() const;
  std::int64_t total_labels() const;
  std::int64_t longest() const;

  /// sha256 over the content (ids, labels, order): equal for equal data, wherever it came from.
  const std::string& fingerprint() const { return fingerprint_; }

  /// The examples at `indices`, in that order, over the same tokens.
  TokenDataset subset(std::vector<std::size_t> indices) const;

  /// `front` followed by the arrays: what the cache stores, and `from_bytes` reads without `front`.
  std::string to_bytes(std::string front = {}) const;

  /// A data set over `bytes` (of to_bytes), which `owner` keeps alive and which must be 8-byte aligned.
  /// Throws Error if sizes and offsets don't fit together; `fingerprint` is taken as given.
  static TokenDataset from_bytes(std::string_view bytes, std::shared_ptr<const void> owner,
                                 std::string fingerprint);

 private:
  std::size_t at(std::size_t i) const { return chosen_ ? chosen_->at(i) : i; }
  std::span<const std::int32_t> sequence(std::span<const std::int32_t> all, std::size_t i) const;
  void set_views(std::span<const std::int64_t> ends, std::span<const std::int64_t> source_rows,
                 std::span<const std::int64_t> source_lines, std::span<const std::int32_t> ids,
                 std::span<const std::int32_t> labels);

  std::shared_ptr<const void> owner_;
  std::size_t count_ = 0;
  std::span<const std::int64_t> ends_;
  std::span<const std::int64_t> source_rows_;
  std::span<const std::int64_t> source_lines_;
  std::span<const std::int32_t> ids_;
  std::span<const std::int32_t> labels_;
  std::shared_ptr<const std::vector<std::int64_t>> label_counts_;
  std::shared_ptr<const std::vector<std::size_t>> chosen_;  // of a subset
  std::string fingerprint_;
};

}  // namespace lorikeet::data
