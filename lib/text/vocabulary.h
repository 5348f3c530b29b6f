#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace lorikeet::text {

/// Spellings and ids of a model's tokens, both ways.
class Vocabulary {
 public:
  /// The largest id that is accepted plus one: far above any real vocabulary, and small enough that a table
  /// indexed by id is harmless.
  static constexpr std::int64_t kIdLimit = std::int64_t{1} << 24;

  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// Adds a token. `where` names the file's place for the Error thrown when the id is out of range or taken,
  /// or the spelling known.
  void add(std::string token, std::int64_t id, const std::string& where);

  std::optional<TokenId> id_of(std::string_view token) const;
  /// The spelling of an id, or nullptr.
  const std::string* token_of(TokenId id) const;

  /// Number of tokens.
  std::size_t size() const { return ids_.size(); }
  /// One more than the largest id.
  std::size_t id_bound() const { return tokens_.size(); }
  /// Tokens by id, nullopt in gaps.
  const std::vector<std::optional<std::string>>& tokens() const { return tokens_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::vector<std::optional<std::string>> tokens_;
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
};

/// The ids of "<0x00>" to "<0xFF>", sentencepiece's names for bytes; -1 where there is none.
std::vector<TokenId> byte_token_ids(const Vocabulary& vocabulary);

}  // namespace lorikeet::text
