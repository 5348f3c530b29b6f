#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace lorikeet::test {

struct FakeTokenizerOptions {
  bool bos = true;
  bool eos = true;
  bool chat_tokens = true;    ///< Llama-3's and ChatML's control tokens exist
  bool dummy_prefix = false;  ///< like sentencepiece: a space before every text encoded
  std::optional<std::string> chat_template{};
  std::optional<std::string> tool_template{};
  std::string bos_token = "<s>";
};

/// A tokenizer whose ids can be read: one id a byte (0 to 255), special tokens from 256 on.
std::shared_ptr<const text::Tokenizer> fake_tokenizer(const FakeTokenizerOptions& options = {});

}  // namespace lorikeet::test
