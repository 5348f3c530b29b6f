#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::text {

/// What check_sentencepiece_model reads on its way.
struct SentencePieceSummary {
  enum class Type : std::uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string text;
    Type type;
    float score;
  };
  std::vector<Piece> pieces;  ///< by id
  bool is_unigram = true;     ///< else BPE
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;

  // normalizer_spec, with the format's defaults.
  bool has_chars_map = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

/// Reads a `tokenizer.model` (sentencepiece_model.proto) with a reader of its own and refuses, before the
/// library parses the bytes, whatever it might trust too far: a cut or malformed message, absurd counts or
/// lengths, pieces that are empty, too long, doubled, with a NUL or not UTF-8, scores that are not finite,
/// unknown types, not exactly one unknown piece, a model that is neither BPE nor unigram, and a normalisation
/// trie that points outside itself. `where` starts the Error's text.
SentencePieceSummary check_sentencepiece_model(std::string_view bytes, const std::string& where);

}  // namespace lorikeet::text
