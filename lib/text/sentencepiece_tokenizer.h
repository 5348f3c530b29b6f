#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/folder_config.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

/// Builds a tokenizer from the bytes of a `tokenizer.model`, encoded and decoded by the sentencepiece
/// library. Added and special tokens that `config` names are recognised in the text first, as Hugging Face's
/// slow tokenizers do; BOS goes in front unless add_bos_token is false, EOS behind if add_eos_token is true.
/// `where` names the file in errors. Throws Error (see check_sentencepiece_model).
std::shared_ptr<const Tokenizer> make_sentencepiece_tokenizer(std::string_view bytes,
                                                              const FolderConfig& config,
                                                              const std::string& where,
                                                              std::string description,
                                                              std::string fingerprint);

}  // namespace lorikeet::text
