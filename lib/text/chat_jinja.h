#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/chat_template.h"

namespace lorikeet::text {

/// The Jinja source that renders what `chat_template` renders, for apply_chat_template of transformers,
/// PEFT's users and vLLM. Of `kInstruction` rows it takes the instruction as a user's content, and for alpaca
/// the input as that message's "input". It reads `messages`, `add_generation_prompt`, `bos_token` and
/// `eos_token`, and calls `raise_exception` for roles and orders that the template can't express.
std::string chat_template_jinja(const ChatTemplate& chat_template, RowKind rows);

/// The built-in, and the kind of rows, for which chat_template_jinja gives `source`; nullopt if there is
/// none.
struct JinjaOrigin {
  const ChatTemplate* chat_template = nullptr;
  RowKind rows = RowKind::kConversation;
};
std::optional<JinjaOrigin> find_by_jinja(std::string_view source);

}  // namespace lorikeet::text
