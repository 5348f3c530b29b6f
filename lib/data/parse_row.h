#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "data/format.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lorikeet::data {

struct DocumentRow {
  std::string text;
};
struct TokensRow {
  std::vector<text::TokenId> ids;
  std::vector<std::int32_t> labels;  ///< as long as `ids`
};
using Row = std::variant<text::Instruction, text::Conversation, DocumentRow, TokensRow>;

/// Reads one record. Contents of messages may be strings or lists of typed text parts. `where` ("[data] line
/// 17 of train.jsonl") starts the Error that is thrown for whatever is missing or of another type, and for
/// rows with a "label" of true or false beside their answer (KTO's preference data). A "system" text beside
/// turns that begin with no system prompt is their first message; of instructions it comes earlier, and so do
/// alpaca's "history" of [question, answer] pairs. Tokens whose "attention_mask" is 0, at the ends alone, are
/// padding and left out. Usual names of speakers become roles: human, gpt, chatgpt, model, bot. Other members
/// of a message stay with it for the template, "tools" may be a list or that list as a JSON text.
Row parse_row(const Json& record, Format format, const Columns& columns, const std::string& where);

}  // namespace lorikeet::data
