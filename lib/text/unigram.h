#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_trie.h"
#include "text/model.h"

namespace lorikeet::text {

/// The unigram language model (Kudo, "Subword regularization", 2018) as tokenizer.json defines it: the cut of
/// a piece with the highest sum of its tokens' scores (Viterbi); of equal ones, the first found.
class Unigram final : public Model {
 public:
  /// `scores` are by id. `unk` is the id for characters that no token covers; without one they are an Error
  /// when met. `where` starts that Error's text.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, std::optional<TokenId> unk, bool byte_fallback,
          std::string where);

  void tokenize(std::string_view piece, std::vector<TokenId>& out) const override;

 private:
  /// The best way to reach a byte of the piece.
  struct Best {
    double score = 0;
    std::uint32_t begin = kUnreached;
    TokenId id = 0;
  };
  static constexpr std::uint32_t kUnreached = ~std::uint32_t{0};

  void best_paths(std::string_view piece, std::vector<Best>& best) const;
  void emit(std::string_view covered, bool unknown, TokenId id, std::vector<TokenId>& out) const;

  ByteTrie trie_;
  std::vector<double> scores_;
  std::optional<TokenId> unk_;
  double unk_score_ = 0;
  std::vector<TokenId> fallback_;  // ids of "<0xNN>", -1 where there is none; empty without byte fallback
  std::string where_;
  std::uint32_t cache_owner_;
};

}  // namespace lorikeet::text
