#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/added_tokens.h"

namespace lorikeet::text {

/// What a checkpoint folder's small files say beside the tokenizer's own: tokenizer_config.json, then
/// special_tokens_map.json and added_tokens.json for what it leaves out, and chat_template.jinja.
struct FolderConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> unk_token;
  /// Spellings of all tokens that are named special.
  std::vector<std::string> special_tokens;
  /// added_tokens_decoder, or the tokens of added_tokens.json.
  std::vector<AddedToken> added_tokens;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  /// Hugging Face's name for giving every stretch of text between special tokens its own leading space.
  bool legacy = true;
  std::optional<std::string> chat_template;
  /// Name and bytes of the files read that decide ids: for the fingerprint.
  std::vector<std::pair<std::string, std::string>> files;
};

/// Reads the files that are there. Throws Error naming the file and key of anything malformed.
FolderConfig read_folder_config(const std::filesystem::path& folder);

}  // namespace lorikeet::text
