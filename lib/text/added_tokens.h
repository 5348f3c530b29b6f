#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/byte_trie.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

/// A token that is looked for in the text before the model sees it ("added_tokens" of a tokenizer.json,
/// "added_tokens_decoder" of a tokenizer_config.json).
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< takes the white space on its left with it
  bool rstrip = false;       ///< and on its right
  bool normalized = false;   ///< looked for in the normalised text
  bool special = false;      ///< left out when decoding without special tokens
};

/// Reads all but the id. Throws Error for a missing or ill-typed field.
AddedToken read_added_token(const JsonView& json);

/// `ranges` as far as they lie in [begin, end), counted from `begin`.
std::vector<ByteRange> ranges_within(std::span<const ByteRange> ranges, std::size_t begin, std::size_t end);

/// Finds added tokens in text: the leftmost, of these the longest, without overlap, as the Rust library does.
class AddedTokenMatcher {
 public:
  /// Makes `content` (the token's, or what normalisation makes of it) stand for `token`. An empty content is
  /// never found.
  void add(std::string_view content, AddedToken token);

  /// Cuts `text` at the tokens found; the segments cover it, but for empty ones. With `parse_special` false
  /// the special ones are passed over, with all that they cover; so are those that overlap a range of
  /// `literal`.
  std::vector<TextSegment> split(std::string_view text, bool parse_special,
                                 std::span<const ByteRange> literal = {}) const;

  bool empty() const { return tokens_.empty(); }

 private:
  ByteTrie trie_;
  std::vector<AddedToken> tokens_;
};

}  // namespace lorikeet::text
