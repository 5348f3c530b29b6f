#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/regex.h"
#include "text/regex_syntax.h"
#include "text/unicode.h"

namespace lorikeet::text {
namespace {

bool is_word_character(std::string_view character) {
  static const Regex word("^[" + std::string(kWordClass) + R"(\x{200c}\x{200d}])", "added token");
  return word.search(character, 0).has_value();
}

bool ends_with_word(std::string_view text) {
  std::size_t begin = text.size();
  if (text.empty()) return false;
  previous_code_point(text, begin);
  return is_word_character(text.substr(begin));
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word_character(text.substr(0, utf8_length(text[0])));
}

std::size_t skip_space_left(std::string_view text, std::size_t end) {
  while (end > 0) {
    std::size_t begin = end;
    if (!is_whitespace(previous_code_point(text, begin))) break;
    end = begin;
  }
  return end;
}

std::size_t skip_space_right(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t behind = at;
    if (!is_whitespace(next_code_point(text, behind))) break;
    at = behind;
  }
  return at;
}

}  // namespace

AddedToken read_added_token(const JsonView& json) {
  AddedToken token;
  token.content = json.at("content").as_string();
  token.special = json.get_bool("special", false);
  token.single_word = json.get_bool("single_word", false);
  token.lstrip = json.get_bool("lstrip", false);
  token.rstrip = json.get_bool("rstrip", false);
  token.normalized = json.get_bool("normalized", !token.special);
  return token;
}

std::vector<ByteRange> ranges_within(std::span<const ByteRange> ranges, std::size_t begin, std::size_t end) {
  std::vector<ByteRange> out;
  auto range = std::lower_bound(ranges.begin(), ranges.end(), begin,
                                [](const ByteRange& r, std::size_t at) { return r.end <= at; });
  for (; range != ranges.end() && range->begin < end; ++range)
    out.push_back({std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  return out;
}

void AddedTokenMatcher::add(std::string_view content, AddedToken token) {
  if (content.empty()) return;
  trie_.insert(content, static_cast<std::uint32_t>(tokens_.size()));
  tokens_.push_back(std::move(token));
}

std::vector<TextSegment> AddedTokenMatcher::split(std::string_view text, bool parse_special,
                                                  std::span<const ByteRange> literal) const {
  std::vector<TextSegment> out;
  const auto is_literal = [&](std::size_t begin, std::size_t end) {
    const auto range = std::upper_bound(literal.begin(), literal.end(), begin,
                                        [](std::size_t at, const ByteRange& r) { return at < r.end; });
    return range != literal.end() && range->begin < end;
  };
  std::size_t done = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    if (!trie_.starts(text[at])) {
      ++at;
      continue;
    }
    std::size_t length = 0;
    std::uint32_t found = 0;
    ByteTrie::Node node = ByteTrie::kRoot;
    for (std::size_t i = at; i < text.size(); ++i) {
      node = trie_.child(node, text[i]);
      if (node == ByteTrie::kNone) break;
      if (const auto value = trie_.value(node)) {
        length = i + 1 - at;
        found = *value;
      }
    }
    if (length == 0) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + length;
    at = end;
    const AddedToken& token = tokens_[found];
    // Normalisation may have put a mark before the content, where a row's blank stands in the text.
    const std::size_t spelt = std::min(length, token.content.size());
    if (token.special && (!parse_special || is_literal(end - spelt, end))) continue;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    // White space that an earlier token took stays with that one.
    if (token.lstrip) begin = std::max(skip_space_left(text, begin), done);
    if (token.rstrip) end = skip_space_right(text, end);
    if (begin >= end) continue;  // white space of its own, all of it taken
    if (done < begin) out.push_back({done, begin, std::nullopt});
    out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), std::nullopt});
  return out;
}

}  // namespace lorikeet::text
