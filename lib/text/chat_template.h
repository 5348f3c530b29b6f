#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

class JinjaChat;

/// One turn of a conversation. Built-in templates know the roles "system", "user" and "assistant".
struct Message {
  std::string role;
  std::string content;
  /// False takes an assistant's turn out of the loss (a row's own "weight": 0). Other roles never train.
  bool trained = true;
  /// False where the row has null instead of a text, beside tool calls for example.
  bool has_content = true;
  /// The row's other members of the message ("tool_calls", "name", "reasoning_content"): an object, or null.
  Json extra{};
};

/// The members of a message that hold its reasoning, by whoever wrote the row.
inline constexpr std::array<std::string_view, 3> kReasoningNames{"reasoning_content", "thinking",
                                                                 "reasoning"};

/// The role that a speaker in data files is known as: human is user; gpt, chatgpt, model and bot are
/// assistant. Other names stay.
std::string role_of_speaker(const std::string& speaker);

/// A row of messages, with the tools that may be called in it: an array of their schemas, or null.
struct Conversation {
  std::vector<Message> messages;
  Json tools{};
};

/// Which tokens of a row the loss is taken on.
enum class TrainOn : std::uint8_t {
  kRoles,  ///< what the assistant says, in every turn, with the token that ends it
  kLast,   ///< the same of its last turn alone
  kAll,    ///< every token
};

/// One instruction-following row: what to do, on what (may be empty), and the answer.
struct Instruction {
  std::string instruction;
  std::string input;
  std::string output;
  std::vector<Message> earlier{};  ///< a system prompt, and turns before this one
};

/// The same as a conversation: what was earlier, the instruction, after a blank line the input, and the
/// answer.
std::vector<Message> as_messages(const Instruction& row);

/// A piece of a rendered prompt. Control tokens stand apart from text, so that text from data is never
/// searched for them.
struct Segment {
  enum class Kind : std::uint8_t {
    kText,   ///< `text` is ordinary text
    kBos,    ///< the tokenizer's BOS; nothing when it has none
    kEos,    ///< the tokenizer's EOS, which it must have
    kToken,  ///< the vocabulary entry spelt `text`, which must exist
  };
  Kind kind = Kind::kText;
  std::string text;
  /// The model is to say this: an answer's text, or the token that ends it.
  bool trained = false;
};

enum class TemplateFamily : std::uint8_t { kPlain, kAlpaca, kLlama2, kLlama3, kChatml };

/// What a prompt template is: a family's layout and the few things in which its variants differ. A closed set
/// of structured renderers, not a Jinja engine; see `builtin_chat_templates` for the choices.
struct ChatTemplate {
  std::string name;
  TemplateFamily family = TemplateFamily::kPlain;
  bool bos = true;                ///< BOS in front, when the tokenizer has one
  bool trim = true;               ///< contents are stripped of Unicode white space at both ends
  bool trim_system = true;        ///< the same for system turns
  bool any_order = true;          ///< turns may follow each other in any order
  std::string system_preamble{};  ///< in front of every system text; makes a system turn when there is none
  std::string default_system{};   ///< the system text of a conversation that has none; "" for no turn
  std::string help{};             ///< one line for lists of choices

  /// The conversation as segments, in order. With `generation_prompt` what opens the assistant's next turn
  /// follows (nothing for Llama-2 and plain, whose user turns end ready for the answer).
  /// Throws Error for roles or orders of turns that the template can't express.
  std::vector<Segment> render(std::span<const Message> messages, bool generation_prompt = false) const;

  /// The row as segments: Stanford's two texts for the alpaca family; for the others one user turn
  /// (instruction, and after a blank line the input) and one assistant turn. With `prompt_only` it stops
  /// where the model's answer begins.
  std::vector<Segment> render(const Instruction& row, bool prompt_only = false) const;
};

/// How a row comes to a template. The texts differ only for alpaca, which has Stanford's prompts for rows of
/// instructions.
enum class RowKind : std::uint8_t { kConversation, kInstruction };

/// All choices for `chat_template`, by name.
const std::vector<ChatTemplate>& builtin_chat_templates();

/// The built-in called `name`; throws Error listing the names.
const ChatTemplate& builtin_chat_template(std::string_view name);

/// The template that rows are written with: built in (`chat_template`) or in Jinja (`jinja`).
struct ChosenTemplate {
  const ChatTemplate* chat_template = nullptr;
  std::string description{};  ///< which and why, for the log: "llama3 (as configured)"
  std::string name{};         ///< the built-in's, or where the Jinja text is from
  /// The Jinja source that it was chosen by: the checkpoint's or a file's. nullopt for a built-in chosen by
  /// name or by default.
  std::optional<std::string> source{};
  /// The rows that `source` was written for, where that is the text of a built-in.
  RowKind rows = RowKind::kConversation;
  std::shared_ptr<const JinjaChat> jinja{};

  bool empty() const { return chat_template == nullptr && jinja == nullptr; }
};

/// The template of a Jinja source: the built-in that chat_template_jinja wrote it for (CRLF read as LF, one
/// final newline dropped), so that the tokens stay those that a run of this program trained with; else the
/// source itself, to be rendered. `where` it stands ("the checkpoint's own") is for the description. Throws
/// Error naming line and column for a source that can't be parsed.
ChosenTemplate template_of_source(const TemplateSources& sources, const std::string& where,
                                  const std::string& date);

/// The Jinja source that gives to transformers' users what rows of this kind were written with by `chosen`:
/// the source that it was chosen by, else the built-in's.
std::string jinja_of(const ChosenTemplate& chosen, RowKind rows);

/// Resolves the config's `data.chat_template`.
/// `setting` is "auto", a built-in's name, the path of a Jinja file, or that of a folder with a tokenizer's
/// files. "auto" takes the checkpoint's template (`checkpoint`); where the checkpoint has none, alpaca for
/// rows of instructions (`instruction_rows`). Everything else throws an Error listing the choices: never a
/// silent fallback. `date` (2024-07-26) is what a Jinja template's strftime_now writes.
ChosenTemplate choose_chat_template(const std::string& setting, const TemplateSources& checkpoint,
                                    bool instruction_rows, const std::string& date);

/// True if the built-in writes the same text as the Jinja template, for conversations as both know them: with
/// and without a system text, several turns, white space around contents, with and without a generation
/// prompt. False, too, for a source that can't be parsed.
bool renders_like(const ChatTemplate& builtin, const TemplateSources& sources, const std::string& date);

}  // namespace lorikeet::text
