#pragma once

#include <cstddef>
#include <iosfwd>

#include "text/tokenizer.h"

namespace lorikeet::text {

struct TokenizeLinesOptions {
  bool decode = false;        ///< id arrays to strings, instead of strings to id arrays
  bool specials = true;       ///< encoding: let the tokenizer add what it adds; decoding: keep special tokens
  bool bos_eos = false;       ///< encoding: BOS and EOS around the bare ids, whatever the tokenizer adds
  bool parse_special = true;  ///< encoding: recognise special tokens that are spelt in the text
  std::size_t threads = 0;    ///< 0: as many as the machine has
};

/// Reads one JSON value a line from `in` and writes one a line to `out`, in the same order: a string becomes
/// the array of its ids, or with `decode` an array of ids becomes the string. Special tokens spelt in the
/// text are recognised. Throws Error naming the line for anything else, and for bos_eos where the tokenizer
/// has no BOS or no EOS; what stands before that line is already written.
void tokenize_lines(const Tokenizer& tokenizer, std::istream& in, std::ostream& out,
                    const TokenizeLinesOptions& options = {});

}  // namespace lorikeet::text
