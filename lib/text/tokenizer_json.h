#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "text/folder_config.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

/// Builds a tokenizer from the parts that a tokenizer.json names: added tokens, normalizer, pre-tokenizer,
/// model, post-processor, decoder, each as the `tokenizers` library defines them. Its "truncation" and
/// "padding" say how a batch was once made, not what text means, and are ignored.
/// `where` names the file in errors. Throws Error for anything malformed or unsupported.
std::shared_ptr<const Tokenizer> make_tokenizer_json(const Json& json, const FolderConfig& config,
                                                     const std::string& where, std::string description,
                                                     std::string fingerprint);

}  // namespace lorikeet::text
