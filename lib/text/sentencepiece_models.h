#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/model.h"
#include "text/sentencepiece_check.h"

// Our own models over a sentencepiece vocabulary: same ids as the library's, on text that is normalised.
namespace lorikeet::text {

/// The byte that a byte piece like "<0x0A>" stands for.
std::size_t byte_of_piece(const std::string& piece);

/// True if the model normalises text by no more than mark_spaces.
bool has_plain_normalizer(const SentencePieceSummary& summary);

/// `text` with U+2581 for every space, and one more in front if `prefix`.
std::string mark_spaces(std::string_view text, bool prefix);

/// The unigram model, with sums of scores in float as the library's current versions have them.
std::unique_ptr<Model> make_unigram_of(const SentencePieceSummary& summary, const std::string& where);

/// The BPE model: two symbols merge where they spell a piece, the highest score first. nullptr where that
/// can't be written as a table of merges: user-defined or unused pieces, or a piece with a character that is
/// none.
std::unique_ptr<Model> make_bpe_of(const SentencePieceSummary& summary, const std::string& where);

}  // namespace lorikeet::text
