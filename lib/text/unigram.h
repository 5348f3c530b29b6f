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
  /// What sums of scores are rounded to: tokenizer.json's are double, sentencepiece's float. It decides
  /// between cuts that would score the same.
  enum class Precision { kDouble, kFloat };

  /// `scores` are by id (gaps in the vocabulary have none that counts). `unk` is the id for characters that
  /// no token covers, each at `unk_score`; without one they are an Error when met, whose text starts with
  /// `where`. `byte_ids` has the token of each byte (-1: none) for spelling them instead, or is empty.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, std::optional<TokenId> unk, double unk_score,
          std::vector<TokenId> byte_ids, Precision precision, std::string where);

  /// How much worse an unknown character scores than the worst token (sentencepiece's kUnkPenalty).
  static constexpr double kUnkPenalty = 10;

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
  double unk_score_;
  Precision precision_;
  std::vector<TokenId> byte_ids_;
  std::string where_;
  std::uint32_t cache_owner_;
};

}  // namespace lorikeet::text
