#include "text/prompt_encoder.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "text/marked_encode.h"

namespace lorikeet::text {
namespace {

Conversation as_conversation(const Instruction& row, bool with_answer) {
  Conversation out{.messages = as_messages(row)};
  if (!with_answer) out.messages.pop_back();
  return out;
}

// What a built-in template has no words for must not be left out in silence.
void require_plain(const Conversation& row, const ChatTemplate& chat_template) {
  const auto fail = [&](const std::string& what) {
    throw Error("[chat_template] " + chat_template.name + " can't express " + what +
                "; set data.chat_template to auto or to a Jinja file whose template can");
  };
  if (!row.tools.is_null()) fail("the row's tools");
  for (std::size_t i = 0; i < row.messages.size(); ++i) {
    const Message& message = row.messages[i];
    const std::string turn = " (turn " + std::to_string(i + 1) + ")";
    if (message.extra.find("tool_calls") != nullptr) fail("tool calls" + turn);
    if (!message.has_content) fail("a message without content" + turn);
    for (const std::string_view name : kReasoningNames) {
      const Json* reasoning = message.extra.find(name);
      if (reasoning != nullptr && !(reasoning->is_string() && is_blank(reasoning->string())))
        fail("'" + std::string(name) + "'" + turn);
    }
  }
}

void train_on_last_alone(std::vector<Message>& messages) {
  bool found = false;
  for (std::size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role != "assistant") continue;
    if (found) messages[i].trained = false;
    found = true;
  }
}

}  // namespace

PromptEncoder::PromptEncoder(const ChosenTemplate& chosen, const Tokenizer& tokenizer)
    : segments_(tokenizer), builtin_(chosen.chat_template), jinja_(chosen.jinja) {
  if (jinja_) answers_.emplace(*jinja_, tokenizer);
  // A vocabulary without the template's control tokens is an error of the settings, not of the first row.
  if (builtin_ != nullptr) segments_.encode(builtin_->render(Instruction{"a", "", "b"}));
}

const ChatTemplate& PromptEncoder::builtin() const {
  if (builtin_ == nullptr) throw Error("[data] rows of this format need a prompt template");
  return *builtin_;
}

EncodedPrompt PromptEncoder::encode(const Conversation& row, TrainOn train_on) const {
  EncodedPrompt out;
  if (jinja_) {
    const JinjaChat::Values values = JinjaChat::values_of(row.messages);
    const jinja::MarkedText whole = jinja_->render(values, row.tools, /*generation_prompt=*/false);
    std::vector<ByteRange> trained;
    if (train_on != TrainOn::kAll) trained = answers_->find(row, values, whole, train_on == TrainOn::kLast);
    out = encode_marked(whole, trained, tokenizer());
    out.leaves_out_something = leaves_out_something(row, whole, train_on);
  } else {
    require_plain(row, builtin());
    std::vector<Message> messages = row.messages;
    if (train_on == TrainOn::kLast) train_on_last_alone(messages);
    out = segments_.encode(builtin().render(messages));
  }
  if (train_on == TrainOn::kAll) out.trained.assign(out.ids.size(), 1);
  return out;
}

EncodedPrompt PromptEncoder::encode(const Instruction& row, TrainOn train_on) const {
  if (jinja_) return encode(as_conversation(row, /*with_answer=*/true), train_on);
  Instruction rendered = row;
  if (train_on == TrainOn::kLast)
    for (Message& message : rendered.earlier) message.trained = false;
  EncodedPrompt out = segments_.encode(builtin().render(rendered));
  if (train_on == TrainOn::kAll) out.trained.assign(out.ids.size(), 1);
  return out;
}

std::vector<TokenId> PromptEncoder::question(const Conversation& row) const {
  if (!jinja_) {
    require_plain(row, builtin());
    return segments_.encode(builtin().render(row.messages, /*generation_prompt=*/true)).ids;
  }
  const JinjaChat::Values values = JinjaChat::values_of(row.messages);
  const jinja::MarkedText rendered = jinja_->render(values, row.tools, /*generation_prompt=*/true);
  if (leaves_out_content(row.messages, rendered)) {
    throw Error(
        "[data.chat_template] the template leaves out what one of the messages says; it may not know the "
        "message's role, such as system");
  }
  return encode_marked(rendered, {}, tokenizer()).ids;
}

std::vector<TokenId> PromptEncoder::question(const Instruction& row) const {
  if (jinja_) return question(as_conversation(row, /*with_answer=*/false));
  return segments_.encode(builtin().render(row, /*prompt_only=*/true)).ids;
}

}  // namespace lorikeet::text
