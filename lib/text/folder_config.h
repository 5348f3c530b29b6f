#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/added_tokens.h"

namespace lorikeet::text {

/// What a checkpoint folder's small files say beside the tokenizer's own: tokenizer_config.json, then
/// special_tokens_map.json and added_tokens.json for what it leaves out, and the files of chat templates.
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
  /// All chat templates by name, as transformers sees them: those of files (chat_template.jinja as "default",
  /// additional_chat_templates/NAME.jinja), else those of tokenizer_config.json.
  std::vector<std::pair<std::string, std::string>> chat_templates;
  /// The variables that transformers gives to chat templates: {"bos_token", "<s>"}; names end in "_token" or
  /// are the keys of "extra_special_tokens".
  std::vector<std::pair<std::string, std::string>> token_names;
  /// Name and bytes of the files read that decide ids: for the fingerprint.
  std::vector<std::pair<std::string, std::string>> files;
};

/// The part of it that chat templates need.
TemplateSources templates_of(const FolderConfig& config);

/// Reads the files that are there. Throws Error naming the file and key of anything malformed.
FolderConfig read_folder_config(const std::filesystem::path& folder);

}  // namespace lorikeet::text
