#pragma once

#include <span>
#include <vector>

#include "text/chat_encode.h"
#include "text/jinja/marked_text.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

/// The ids of a rendered conversation, as transformers' apply_chat_template gives them for the whole text,
/// but that special tokens are only recognised where the template wrote all of their characters: what a row
/// spells stays text. A token with a character within one of the ranges of `trained` (in order, without
/// overlap) is one that the model is to say, also where the token began before the range: as transformers'
/// return_assistant_tokens_mask counts.
EncodedPrompt encode_marked(const jinja::MarkedText& text, std::span<const ByteRange> trained,
                            const Tokenizer& tokenizer);

}  // namespace lorikeet::text
