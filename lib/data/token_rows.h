#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lorikeet::data {

/// "No loss here", as in Hugging Face's data sets.
inline constexpr std::int32_t kNoLabel = -100;

/// Number of targets after the shift inside one sequence: labels[1:] that are not kNoLabel.
std::int64_t count_targets(std::span<const std::int32_t> labels);

/// Examples under construction, packed end to end.
///
/// An example is its n ids followed by its labels. Nearly always a label is the token's own id or kNoLabel,
/// and then the labels take one bit a token (bit t % 32 of word t / 32: token t has a label); labels of any
/// other value are written in full.
struct TokenRows {
  std::vector<std::int32_t> words;          ///< all packed examples
  std::vector<std::uint64_t> begins;        ///< [N], the first word of each
  std::vector<std::uint32_t> lengths;       ///< [N], tokens; the top bit says that labels are in full
  std::vector<std::uint32_t> label_counts;  ///< [N], see count_targets
  std::vector<std::uint32_t> source_rows;   ///< [N], the file's row that each came from, from 0
  std::vector<std::uint32_t> source_lines;  ///< [N], the line on which it begins, from 1; 0 in an array

  std::size_t size() const { return begins.size(); }
  /// Memory of all arrays, without what vectors hold in reserve.
  std::size_t bytes() const;
  /// Adds one sequence; `labels` as long as `ids`. Throws Error where that isn't so, or where a row or line
  /// is beyond 4294967295.
  void add(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels, std::int64_t source_row,
           std::int64_t source_line);
  /// Adds all of `other` behind.
  void append(const TokenRows& other);
};

/// Read access to packed examples, in memory or in a mapped file. Owns nothing; the members are TokenRows's.
struct TokenViews {
  std::span<const std::int32_t> words;
  std::span<const std::uint64_t> begins;
  std::span<const std::uint32_t> lengths;
  std::span<const std::uint32_t> label_counts;
  std::span<const std::uint32_t> source_rows;
  std::span<const std::uint32_t> source_lines;

  TokenViews() = default;
  explicit TokenViews(const TokenRows& rows);

  std::size_t size() const { return begins.size(); }
  std::int64_t length(std::size_t i) const { return lengths[i] & ~kFullLabels; }
  std::span<const std::int32_t> ids(std::size_t i) const {
    return words.subspan(begins[i], static_cast<std::size_t>(length(i)));
  }
  /// Replaces `out` by the labels of example `i`. Throws Error where they are damaged in a way that shows.
  void labels(std::size_t i, std::vector<std::int32_t>& out) const;

  /// Throws Error if the arrays don't fit together: then an example could be read beyond the words.
  void check() const;

  static constexpr std::uint32_t kFullLabels = std::uint32_t{1} << 31;
};

/// sha256 over the content: the lengths, all ids, all labels, in order. Equal for equal examples, whatever
/// they came from. Goes over the words twice from front to back; `passed` (or null) hears after each example
/// which word comes next, so that what lies before can leave the memory.
std::string content_fingerprint(const TokenViews& examples,
                                const std::function<void(std::size_t)>& passed = nullptr);

}  // namespace lorikeet::data
