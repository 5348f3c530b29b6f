#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "data/token_dataset.h"
#include "text/tokenizer.h"

namespace lorikeet::data {

struct PreviewOptions {
  bool colour = false;            ///< ANSI colours; every other token in another shade
  std::size_t max_tokens = 1000;  ///< of an example; the rest is only counted
};

/// Example `i` for people: a head line with its source line and counts, then one line for each run of tokens
/// that are trained on ("+ ") or not ("- "), tokens parted by '|', or by colour. All control characters are
/// escaped, newlines as \n, so that what is in the data can't drive a terminal.
std::string preview_example(const TokenDataset& dataset, std::size_t i, const text::Tokenizer& tokenizer,
                            const PreviewOptions& options = {});

/// The text that each token adds to those before it; a character spread over several tokens belongs to the
/// last of them, the others get "". Control tokens give their spelling, ids
/// that the tokenizer doesn't have "<id 1300>".
std::vector<std::string> token_texts(std::span<const text::TokenId> ids, const text::Tokenizer& tokenizer);

}  // namespace lorikeet::data
