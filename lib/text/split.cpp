#include "text/split.h"

#include <algorithm>

namespace lorikeet::text {
namespace {

// Joins each match that doesn't follow a match to the span before it, which in reverse order is the next.
// The first span, if a match, stays alone.
void merge_into_neighbour(std::vector<Span>& spans, bool reversed) {
  std::size_t count = 0;
  bool previous_match = false;
  for (const Span span : spans) {
    const bool joins = span.is_match && !previous_match && count > 0;
    if (!joins) {
      spans[count++] = span;
    } else if (reversed) {
      spans[count - 1].begin = span.begin;
    } else {
      spans[count - 1].end = span.end;
    }
    previous_match = span.is_match;
  }
  spans.resize(count);
}

}  // namespace

SplitBehavior read_split_behavior(const JsonView& json) {
  const std::string& name = json.as_string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  json.fail("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

void cut(const Piece& piece, std::vector<Span>& spans, SplitBehavior behavior, std::vector<Piece>& out) {
  switch (behavior) {
    case SplitBehavior::kIsolated: break;
    case SplitBehavior::kRemoved: std::erase_if(spans, [](const Span& span) { return span.is_match; }); break;
    case SplitBehavior::kContiguous: {
      std::size_t count = 0;
      bool previous_match = false;
      for (const Span span : spans) {
        if (count > 0 && span.is_match == previous_match) {
          spans[count - 1].end = span.end;
        } else {
          spans[count++] = span;
        }
        previous_match = span.is_match;
      }
      spans.resize(count);
      break;
    }
    case SplitBehavior::kMergedWithPrevious: merge_into_neighbour(spans, false); break;
    case SplitBehavior::kMergedWithNext:
      std::reverse(spans.begin(), spans.end());
      merge_into_neighbour(spans, true);
      std::reverse(spans.begin(), spans.end());
      break;
  }
  for (const Span& span : spans) {
    if (span.begin == span.end) continue;
    out.push_back({piece.text.substr(span.begin, span.end - span.begin), piece.at_start && span.begin == 0});
  }
}

}  // namespace lorikeet::text
