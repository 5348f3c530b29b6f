#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/token_rows.h"

namespace lorikeet::data {

/// Tokenised examples, immutable and cheap to copy (copies share the tokens). Tokens lie in memory, or in a
/// mapped file of any size: of that no more than some hundred megabytes stay in the resident set.
class TokenDataset {
 public:
  TokenDataset() = default;

  /// Examples of `rows`. The fingerprint is content_fingerprint.
  explicit TokenDataset(TokenRows rows);

  /// Examples that lie in `file`, of which `words_bytes` from the front are the words. `views` are checked
  /// already; `fingerprint` is taken as given.
  TokenDataset(const TokenViews& views, std::shared_ptr<const MappedFile> file, std::size_t words_bytes,
               std::string fingerprint);

  std::size_t size() const { return chosen_ ? chosen_->size() : views_.size(); }
  /// Stays where it is as long as a copy of this data set lives.
  std::span<const std::int32_t> ids(std::size_t i) const;
  /// Unshifted: labels(i)[t] is ids(i)[t] (or what the row said instead), or kNoLabel.
  std::vector<std::int32_t> labels(std::size_t i) const;
  std::int64_t length(std::size_t i) const { return views_.length(at(i)); }
  /// Targets after the shift inside the sequence (see count_targets).
  std::int64_t label_count(std::size_t i) const { return views_.label_counts[at(i)]; }
  /// The row of the source file (from 0), and its line (from 1; 0 where the file is an array).
  std::int64_t source_row(std::size_t i) const { return views_.source_rows[at(i)]; }
  std::int64_t source_line(std::size_t i) const { return views_.source_lines[at(i)]; }

  /// Where people find examples in the source file: "lines 17, 20", in an array "rows 3, 4" (from 1).
  std::string source_places(std::span<const std::size_t> examples) const;

  std::int64_t total_tokens() const;
  std::int64_t total_labels() const;
  std::int64_t longest() const;

  /// sha256 over the content (ids, labels, order): equal for equal data, wherever it came from.
  const std::string& fingerprint() const { return fingerprint_; }

  /// The examples at `indices`, in that order, over the same tokens.
  TokenDataset subset(std::vector<std::uint32_t> indices) const;

 private:
  class Residence;

  std::size_t at(std::size_t i) const { return chosen_ ? chosen_->at(i) : i; }

  std::shared_ptr<const void> owner_;
  std::shared_ptr<const Residence> residence_;  // only of a large file
  TokenViews views_;
  std::shared_ptr<const std::vector<std::uint32_t>> chosen_;  // of a subset
  std::string fingerprint_;
};

}  // namespace lorikeet::data
