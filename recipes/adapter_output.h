#pragma once

#include <filesystem>
#include <vector>

#include "peft/adapter_contents.h"

namespace lorikeet::recipes {

/// Throws Error unless `output` is absent or an empty folder.
void require_new_folder(const std::filesystem::path& output);

/// Writes an adapter made of others to `output`, a new or empty folder, which appears whole or not at all,
/// with the tokenizer's files of the first of `sources` (of its run, for a run's best/ and checkpoints/) and
/// the chat template that this one was trained with, where it has them, and what is known of how they were
/// trained (TrainedWith): the first one's where sources differ, with a warning.
void write_adapter(const peft::AdapterContents& adapter, const std::vector<std::filesystem::path>& sources,
                   const std::filesystem::path& output);

}  // namespace lorikeet::recipes
