#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

/// Tokens that a user adds to a checkpoint's tokenizer.
struct NewTokens {
  std::vector<std::string> words;    ///< recognised wherever a text has them, like words of the vocabulary
  std::vector<std::string> special;  ///< control tokens: of templates, never of what a row says

  bool empty() const { return words.empty() && special.empty(); }
};

/// Those of `tokens` that `tokenizer` doesn't have, numbered on from its vocabulary's size, words first: as
/// transformers' add_tokens makes them of strings. Throws Error for one that is empty or named twice.
std::vector<AddedToken> number_tokens(const NewTokens& tokens, const Tokenizer& tokenizer);

/// load_tokenizer of a folder, with tokens on top whose ids it doesn't have.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& folder,
                                                const std::vector<AddedToken>& added);

struct ExtendedTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<AddedToken> added;  ///< what the folder's doesn't have
};

/// load_tokenizer of a folder with these tokens.
ExtendedTokenizer load_tokenizer_with(const std::filesystem::path& folder, const NewTokens& tokens);

/// A tokenizer.json's text with `tokens` behind its added_tokens; all else stays byte for byte.
std::string tokenizer_json_with(const std::string& json, const std::vector<AddedToken>& tokens);

/// A tokenizer_config.json's text with `tokens` in its added_tokens_decoder, likewise.
std::string tokenizer_config_with(const std::string& json, const std::vector<AddedToken>& tokens);

}  // namespace lorikeet::text
