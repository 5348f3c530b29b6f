#pragma once

#include <memory>

#include "data/record_source.h"

namespace lorikeet::data {

/// The conversations in a table of messages as OpenAssistant publishes it: rows with message_id, parent_id
/// (null for a prompt that begins a tree), role (prompter or assistant), text and rank (0 is the best of the
/// replies). Each tree gives one conversation, {"messages": [...]}: from its prompt always on to the best
/// reply (without ranks the first), as far as the last answer; trees without an answer give none. Deleted
/// messages and what follows them are left out. Throws Error naming the row for what is missing or of another
/// type, for an id that occurs twice, and when no conversation is left.
std::unique_ptr<RecordSource> conversations_of_trees(std::unique_ptr<RecordSource> source);

}  // namespace lorikeet::data
