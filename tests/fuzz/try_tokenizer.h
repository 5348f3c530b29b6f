#pragma once

#include "text/tokenizer.h"

namespace lorikeet::fuzz {

/// Encodes and decodes a few hard texts: ids lie in the vocabulary, decoding them doesn't fail.
void try_tokenizer(const text::Tokenizer& tokenizer);

}  // namespace lorikeet::fuzz
