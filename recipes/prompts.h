#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/options.h"
#include "text/prompt_encoder.h"
#include "text/tokenizer.h"

namespace lorikeet::recipes {

/// A row of a data file as a question to the model, and the answer that it should give.
struct Prompt {
  std::string shown;               ///< the question for people: instruction and input, or the last user turn
  std::vector<text::TokenId> ids;  ///< what the model is given, up to where its answer begins
  std::vector<text::TokenId> expected;  ///< the answer's ids, its end token included
};

/// The first `limit` rows of `file` (0: all) as prompts: the last answer is expected, as it would be trained
/// on, and everything before it given. What a template writes behind it belongs to neither. Rows without an
/// answer are an Error.
/// `used` gets the template's description, where rows need one.
std::vector<Prompt> read_prompts(const std::filesystem::path& file, const data::DataOptions& options,
                                 const text::Tokenizer& tokenizer, std::size_t limit,
                                 std::string* used = nullptr);

/// A question typed by a person, as a row's instruction, or as a conversation's first turn, behind the system
/// prompt `system`, if there is one.
Prompt make_prompt(const std::string& question, const std::string& system, text::RowKind kind,
                   const text::PromptEncoder& encoder);

}  // namespace lorikeet::recipes
