#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lorikeet::text {

/// A part of the text between two pre-tokenization steps.
struct Piece {
  std::string_view text;
  /// Stands at the start of the whole text (Metaspace's prepend_scheme "first" asks).
  bool at_start;
};

/// The pieces of one text. Steps that rewrite text keep it in `storage`, whose elements stay where they are.
struct Pieces {
  std::vector<Piece> list;
  std::vector<Piece> next;  // what a step builds before swapping it with `list`
  std::deque<std::string> storage;
};

/// A match of a splitting pattern, or the text between two.
struct Span {
  std::size_t begin;
  std::size_t end;
  bool is_match;
};

/// What becomes of a match (the names are tokenizer.json's). With '-' matched in "the-final--countdown":
///   Removed             the final countdown
///   Isolated            the - final - - countdown
///   MergedWithPrevious  the- final- - countdown
///   MergedWithNext      the -final - -countdown
///   Contiguous          the - final -- countdown
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Reads the behaviour's name; throws Error for an unknown one.
SplitBehavior read_split_behavior(const JsonView& json);

/// Cuts `piece` at `spans`, which cover it without gaps, and appends the parts that aren't empty to `out`.
/// `spans` is changed.
void cut(const Piece& piece, std::vector<Span>& spans, SplitBehavior behavior, std::vector<Piece>& out);

/// Appends the spans of `text` to `spans` for matches reported by `for_each(visit)`.
template <class ForEachMatch>
void collect_spans(std::string_view text, bool invert, std::vector<Span>& spans, ForEachMatch&& for_each) {
  std::size_t previous = 0;
  for_each([&](std::size_t begin, std::size_t end) {
    if (previous != begin) spans.push_back({previous, begin, invert});
    spans.push_back({begin, end, !invert});
    previous = end;
  });
  if (previous != text.size()) spans.push_back({previous, text.size(), invert});
}

}  // namespace lorikeet::text
