#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "config/settings.h"
#include "data/load.h"
#include "text/new_tokens.h"
#include "text/tokenizer.h"

// The tokenizer's files that a run's output and a merged checkpoint carry, and the chat template among them.
namespace lorikeet::recipes {

/// The Jinja source of the template that a run's rows are written with; nullopt where they need none. It is
/// the checkpoint's or the configured file's own where that is used, or writes the same text as the built-in
/// that is; else the built-in's. `report` is
/// that of the training file.
std::optional<std::string> training_template(const config::Settings& settings, const data::FileReport& report,
                                             const text::Tokenizer& tokenizer);

/// Copies the tokenizer's files from the folder `from` to the folder `to`, so that whoever loads the adapter
/// uses the same.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);

/// Adds tokens to the tokenizer's files in `folder`, which stay as they are otherwise.
void add_tokens(const std::filesystem::path& folder, const std::vector<text::AddedToken>& tokens);

/// Makes `jinja` the chat template of the tokenizer's files in `folder`: chat_template.jinja, and the
/// "chat_template" of tokenizer_config.json where there is one, whose other members stay as they are. What
/// processors of multimodal models would take before these is removed (chat_template.json) or made the same
/// (processor_config.json). Changes nothing where that is the template of both folders already; `source` is
/// the one that the files were copied from: `folder` itself may hold the chat_template.jinja of an earlier
/// call, which doesn't say what the copied tokenizer_config.json has.
void set_chat_template(const std::filesystem::path& folder, const std::string& jinja,
                       const std::filesystem::path& source);

}  // namespace lorikeet::recipes
