#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/flat_map.h"
#include "text/model.h"

namespace lorikeet::text {

/// What a BPE model is made of besides its vocabulary.
struct BpeParts {
  std::vector<std::pair<std::string, std::string>> merges;  ///< by rank, spelt as in the vocabulary
  std::vector<std::uint32_t> ranks;  ///< of the merges, where equal ones occur; empty: their order
  std::optional<std::string> unk_token;
  bool fuse_unk = false;       ///< neighbouring unknown characters become one unk
  bool byte_fallback = false;  ///< unknown characters become "<0xNN>" tokens where all are there
  bool ignore_merges = false;  ///< a piece that is in the vocabulary is that token
  bool byte_pieces = false;    ///< pieces are raw bytes; the vocabulary is in the byte-level alphabet
};

/// Byte-pair encoding (Sennrich et al., "Neural machine translation of rare words with subword units", 2016)
/// as tokenizer.json defines it: the lowest-ranked pair is merged first, of equal ones the leftmost.
class Bpe final : public Model {
 public:
  /// Throws Error starting with "[where]" when a merge or the unk token isn't in the vocabulary.
  Bpe(Vocabulary vocabulary, const BpeParts& parts, const std::string& where);

  void tokenize(std::string_view piece, std::vector<TokenId>& out) const override;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  struct Merge {
    std::uint32_t rank;
    TokenId id;
  };

  static constexpr std::uint32_t kNoMerge = ~std::uint32_t{0};

  void add_merges(const BpeParts& parts, const std::string& where);
  void find_symbols(const BpeParts& parts);

  Merge merge_of(TokenId left, TokenId right) const {
    const std::uint64_t* found = merges_.find(std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
                                              static_cast<std::uint32_t>(right));
    if (found == nullptr) return {kNoMerge, 0};
    return {static_cast<std::uint32_t>(*found >> 32), static_cast<TokenId>(*found)};
  }

  void tokenize_word(std::string_view word, std::vector<TokenId>& out) const;
  std::optional<TokenId> whole_word(std::string_view word) const;
  void split_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
  bool fall_back_to_bytes(std::string_view character, std::vector<TokenId>& symbols) const;
  void merge_short(std::vector<TokenId>& symbols) const;
  void merge_long(std::vector<TokenId>& symbols) const;

  FlatMap merges_;                 // (left, right) -> (rank, id)
  FlatMap characters_;             // code point -> id
  std::array<TokenId, 256> low_;   // id of a byte (byte_pieces) or of a code point below 128; -1: none
  std::vector<TokenId> byte_ids_;  // see byte_token_ids
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> raw_words_;  // ignore_merges on bytes
  std::optional<TokenId> unk_;
  bool fuse_unk_;
  bool byte_fallback_;
  bool ignore_merges_;
  bool byte_pieces_;
  bool cut_at_marks_ = false;  // see tokenize()
  std::uint32_t cache_owner_;
};

}  // namespace lorikeet::text
