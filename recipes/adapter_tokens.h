#pragma once

#include <filesystem>
#include <string>

#include "recipes/model_session.h"

// Whose rows a trained embedding holds: the tokenizer that a run keeps beside its adapter says so. Nothing is
// known of an adapter without one, or with one that can't be read.
namespace lorikeet::recipes {

/// Throws Error, naming the first that differs, where the session trains rows of tokens, and the tokenizer of
/// `adapter` has another token under the id of one.
void require_same_tokens(const std::filesystem::path& adapter, const ModelSession& session);

/// The same for two adapters whose embeddings are to be one.
void require_same_tokens(const std::filesystem::path& adapter, const std::filesystem::path& other);

}  // namespace lorikeet::recipes
