#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "text/chat_template.h"
#include "text/tokenizer.h"

// The chat template that an adapter was trained with, so that it is asked in the words that it has learnt.
namespace lorikeet::recipes {

struct AdapterTemplate {
  text::ChosenTemplate chosen;
  std::filesystem::path folder;  ///< whose files say so: the adapter's, or that of the run it is a part of
};

/// The folder of the run that wrote the adapter: its own, or that above best/ and checkpoints/step_N/.
std::filesystem::path run_of_adapter(const std::filesystem::path& adapter);

/// The template that the adapter in `folder` was trained with, as far as its files say so in words that are
/// known here: config.yaml and the tokenizer's files of a run of this program (also for its best/ and
/// checkpoints/step_N/), the tokenizer's files of any other adapter. Throws nothing for files that can't be
/// read: they say nothing then.
std::optional<AdapterTemplate> adapter_template(const std::filesystem::path& folder);

/// How questions are written to a model with or without an adapter.
struct InferenceTemplate {
  std::string setting;                                  ///< for data.chat_template
  text::RowKind prompts = text::RowKind::kInstruction;  ///< what a bare question is written as
  bool reported = false;                                ///< which template it is was logged
};

/// Settles `setting` (data.chat_template of the command line): auto becomes the adapter's, where it has one.
/// Logs what is used and where it is from, and warns where `setting` is another one than the adapter's.
InferenceTemplate settle_chat_template(const std::string& setting,
                                       const std::optional<std::filesystem::path>& adapter,
                                       const text::Tokenizer& tokenizer);

}  // namespace lorikeet::recipes
