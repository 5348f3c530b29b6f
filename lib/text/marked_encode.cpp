#include "text/marked_encode.h"

#include <algorithm>
#include <string_view>

#include "text/added_tokens.h"

namespace lorikeet::text {
namespace {

std::vector<ByteRange> row_ranges(const jinja::MarkedText& text) {
  std::vector<ByteRange> ranges;
  std::size_t begin = 0;
  for (const jinja::MarkedText::Run& run : text.runs()) {
    if ((run.origin & jinja::kFromRow) != 0) {
      if (!ranges.empty() && ranges.back().end == begin) {
        ranges.back().end = run.end;
      } else {
        ranges.push_back({begin, run.end});
      }
    }
    begin = run.end;
  }
  return ranges;
}

// Where the tokens of a stretch of text begin and end, as far as it is asked.
class TokenEdges {
 public:
  TokenEdges(std::string_view text, bool at_start, std::span<const ByteRange> literal,
             const Tokenizer& tokenizer)
      : text_(text), at_start_(at_start), literal_(literal), tokenizer_(tokenizer) {
    ids_ = encode(text.size());
  }

  const std::vector<TokenId>& ids() const { return ids_; }

  /// How many tokens end at the offset or before it.
  std::size_t ended(std::size_t offset) { return look(offset).ended; }
  /// How many tokens begin before the offset.
  std::size_t begun(std::size_t offset) { return look(offset).begun; }

 private:
  struct Counts {
    std::size_t offset = 0, ended = 0, begun = 0;
  };

  std::vector<TokenId> encode(std::size_t size) const {
    const std::vector<ByteRange> literal = ranges_within(literal_, 0, size);
    return tokenizer_.encode_between(text_.substr(0, size), at_start_,
                                     {.add_special_tokens = false, .literal = literal});
  }

  // The text before the offset has tokens of its own. Where the whole begins with these, a token ends there.
  // Else one crosses the offset: the first whose text makes what was said so far longer than what stands
  // before it.
  Counts look(std::size_t offset) {
    if (offset == 0) return {};
    if (offset >= text_.size()) return {offset, ids_.size(), ids_.size()};
    if (last_.offset == offset) return last_;
    const std::vector<TokenId> before = encode(offset);
    const auto parted = std::mismatch(before.begin(), before.end(), ids_.begin(), ids_.end());
    auto same = static_cast<std::size_t>(parted.first - before.begin());
    last_ = {offset, same, same};
    if (same == before.size()) return last_;
    const std::size_t length = tokenizer_.decode(before, false).size();
    const auto said = [&](std::size_t count) {
      return tokenizer_.decode(std::span(ids_).first(count), false).size();
    };
    while (same < ids_.size() && said(same + 1) <= length) ++same;
    last_ = {offset, same, said(same) < length ? same + 1 : same};
    return last_;
  }

  std::string_view text_;
  bool at_start_;
  std::span<const ByteRange> literal_;
  const Tokenizer& tokenizer_;
  std::vector<TokenId> ids_;
  Counts last_{};
};

}  // namespace

EncodedPrompt encode_marked(const jinja::MarkedText& text, std::span<const ByteRange> trained,
                            const Tokenizer& tokenizer) {
  const std::vector<ByteRange> literal = row_ranges(text);
  const std::string_view bytes = text.bytes();
  EncodedPrompt out;
  for (const TextSegment& segment :
       tokenizer.split_at_added(bytes, {.add_special_tokens = false, .literal = literal})) {
    const std::vector<ByteRange> said = ranges_within(trained, segment.begin, segment.end);
    if (segment.id) {
      out.ids.push_back(*segment.id);
      out.trained.push_back(said.empty() ? 0 : 1);
      continue;
    }
    const std::vector<ByteRange> rows = ranges_within(literal, segment.begin, segment.end);
    TokenEdges edges(bytes.substr(segment.begin, segment.end - segment.begin), segment.begin == 0, rows,
                     tokenizer);
    const std::size_t first = out.ids.size();
    out.ids.insert(out.ids.end(), edges.ids().begin(), edges.ids().end());
    out.trained.resize(out.ids.size(), 0);
    for (const ByteRange& range : said) {
      const std::size_t begin = edges.ended(range.begin), end = edges.begun(range.end);
      for (std::size_t t = begin; t < end; ++t) out.trained[first + t] = 1;
    }
  }
  return out;
}

}  // namespace lorikeet::text
