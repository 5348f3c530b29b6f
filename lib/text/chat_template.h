#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::text {

/// One turn of a conversation. Roles are "system", "user" and "assistant".
struct Message {
  std::string role;
  std::string content;
  /// False takes an assistant's turn out of the loss (a row's own "weight": 0). Other roles never train.
  bool trained = true;
};

/// One instruction-following row: what to do, on what (may be empty), and the answer.
struct Instruction {
  std::string instruction;
  std::string input;
  std::string output;
};

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

/// The built-in whose rendering equals that of the Jinja source `source` for the inputs supported here, or
/// nullptr. Known sources are recognised by the sha256 of their text (CRLF read as LF, one final newline
/// dropped), and those written by chat_template_jinja by the text itself; each was rendered with jinja2 and
/// compared. Llama-3.2's is taken for Llama-3.1's, whose date
/// stays.
const ChatTemplate* recognise_chat_template(std::string_view source);

struct ChosenTemplate {
  const ChatTemplate* chat_template = nullptr;
  std::string description;  ///< which and why, for the log: "llama3 (the checkpoint's own)"
  /// The Jinja source that was recognised: the checkpoint's or a file's. nullopt for a built-in chosen by
  /// name or by default.
  std::optional<std::string> source{};
  /// The rows that the recognised source was written for; a conversation's where it doesn't say.
  RowKind rows = RowKind::kConversation;
  bool exact = true;  ///< false: `source` writes something else besides, which `description` says
};

/// The template of a Jinja source, `where` it stands ("as the checkpoint's own") for the description; nullopt
/// if the source isn't recognised.
std::optional<ChosenTemplate> recognise_source(std::string_view source, const std::string& where);

/// The Jinja source that gives to transformers' users what rows of this kind were written with by `chosen`:
/// the recognised source itself, else the built-in's.
std::string jinja_of(const ChosenTemplate& chosen, RowKind rows);

/// Resolves the config's `data.chat_template`.
/// `setting` is "auto", a built-in's name, or the path of a Jinja file with a source that is recognised.
/// "auto" takes the checkpoint's template (`checkpoint_source`) where it is recognised; where the checkpoint
/// has none, alpaca for rows of instructions (`instruction_rows`). Everything else throws an Error listing
/// the choices: never a silent fallback.
ChosenTemplate choose_chat_template(const std::string& setting,
                                    const std::optional<std::string>& checkpoint_source,
                                    bool instruction_rows);

}  // namespace lorikeet::text
