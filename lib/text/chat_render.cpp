// The renderers of the template families. Each writes the text of the Jinja template it stands for, with the
// control tokens apart; sources are named where they are.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/strings.h"
#include "text/chat_template.h"

namespace lorikeet::text {
namespace {

using Kind = Segment::Kind;

// Code points that Python's str.strip, and so Jinja's `trim`, takes for white space.
bool is_python_space(char32_t c) {
  static constexpr std::array<char32_t, 9> kSingle{0x20,   0x85,   0xA0,   0x1680, 0x2028,
                                                   0x2029, 0x202F, 0x205F, 0x3000};
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || (c >= 0x2000 && c <= 0x200A) ||
         std::find(kSingle.begin(), kSingle.end(), c) != kSingle.end();
}

// The code point at text[i] and its length; `text` is UTF-8 (the readers check).
std::pair<char32_t, std::size_t> code_point(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) {
    return static_cast<unsigned char>(i + k < text.size() ? text[i + k] : 0);
  };
  if (byte(0) < 0x80) return {byte(0), 1};
  if (byte(0) < 0xE0) return {(byte(0) & 0x1FU) << 6 | (byte(1) & 0x3FU), 2};
  if (byte(0) < 0xF0) return {(byte(0) & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
  return {0, 4};  // no white space beyond the basic plane
}

std::string strip_right(std::string_view text) {
  while (!text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!is_python_space(code_point(text, start).first)) break;
    text = text.substr(0, start);
  }
  return std::string(text);
}

std::string strip(std::string_view text) {
  while (!text.empty()) {
    const auto [c, length] = code_point(text, 0);
    if (!is_python_space(c)) break;
    text.remove_prefix(std::min(length, text.size()));
  }
  return strip_right(text);
}

class Renderer {
 public:
  explicit Renderer(const ChatTemplate& chat_template) : template_(chat_template) {}

  std::vector<Segment> conversation(std::span<const Message> messages, bool generation_prompt) {
    check(messages);
    switch (template_.family) {
      case TemplateFamily::kPlain: plain(messages); break;
      case TemplateFamily::kAlpaca: alpaca(messages, generation_prompt); break;
      case TemplateFamily::kLlama2: llama2(messages); break;
      case TemplateFamily::kLlama3: llama3(messages, generation_prompt); break;
      case TemplateFamily::kChatml: chatml(messages, generation_prompt); break;
    }
    return std::move(segments_);
  }

  // The prompts of github.com/tatsu-lab/stanford_alpaca, train.py, PROMPT_DICT.
  std::vector<Segment> stanford(const Instruction& row, bool prompt_only) {
    segment(Kind::kBos, "", false);
    for (const Message& message : row.earlier) {
      if (message.role == "system") {
        text(message.content + "\n\n");
      } else if (message.role == "user") {
        stanford_prompt(message.content, "");
      } else {
        answer(message.content, message.trained);
        text("\n\n");
      }
    }
    stanford_prompt(row.instruction, row.input);
    if (!prompt_only) answer(row.output, true);
    return std::move(segments_);
  }

 private:
  void stanford_prompt(const std::string& instruction, const std::string& input) {
    const std::string request =
        "Write a response that appropriately completes the request.\n\n### Instruction:\n";
    if (input.empty()) {
      text("Below is an instruction that describes a task. " + request + instruction + "\n\n### Response:\n");
    } else {
      text(
          "Below is an instruction that describes a task, paired with an input that provides further "
          "context. " +
          request + instruction + "\n\n### Input:\n" + input + "\n\n### Response:\n");
    }
  }
  void answer(const std::string& value, bool trained) {
    text(value, trained);
    segment(Kind::kEos, "", trained);
  }
  void segment(Kind kind, std::string value, bool trained) {
    segments_.push_back({kind, std::move(value), trained});
  }
  void text(std::string value, bool trained = false) {
    if (!value.empty()) segment(Kind::kText, std::move(value), trained);
  }
  void bos() {
    if (template_.bos) segment(Kind::kBos, "", false);
  }
  void token(const char* spelling, bool trained = false) { segment(Kind::kToken, spelling, trained); }

  std::string content(const Message& message) const {
    const bool trim = message.role == "system" ? template_.trim_system : template_.trim;
    return trim ? strip(message.content) : message.content;
  }
  static bool speaks(const Message& message) { return message.role == "assistant" && message.trained; }

  void check(std::span<const Message> messages) const {
    const auto fail = [&](std::size_t turn, const std::string& what) {
      throw Error("[chat_template] " + template_.name + " at turn " + std::to_string(turn + 1) + ": " + what);
    };
    if (messages.empty()) throw Error("[chat_template] expected at least one turn, got none");
    const std::size_t first = messages[0].role == "system" ? 1 : 0;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const std::string& role = messages[i].role;
      if (role != "system" && role != "user" && role != "assistant")
        fail(i, "expected role system, user or assistant, got '" + escape_control(role) + "'");
      if (template_.any_order || i < first) continue;
      const std::string expected = (i - first) % 2 == 0 ? "user" : "assistant";
      if (role != expected) fail(i, "expected turns to alternate user, assistant, ...; got '" + role + "'");
    }
  }

  void plain(std::span<const Message> messages) {
    bos();
    for (const Message& message : messages) {
      text(content(message), speaks(message));
      if (message.role == "assistant") segment(Kind::kEos, "", speaks(message));
    }
  }

  void alpaca(std::span<const Message> messages, bool generation_prompt) {
    bos();
    for (const Message& message : messages) {
      if (message.role == "system") {
        text(content(message) + "\n\n");
      } else if (message.role == "user") {
        text("### Instruction:\n" + content(message) + "\n\n");
      } else {
        text("### Response:\n");
        text(content(message), speaks(message));
        segment(Kind::kEos, "", speaks(message));
        text("\n\n");
      }
    }
    if (generation_prompt) text("### Response:\n");
  }

  // Meta's "[INST] ... [/INST]": the space before an answer is the answer's, because prompts end at
  // "[/INST]".
  void llama2(std::span<const Message> messages) {
    std::string system;
    if (messages[0].role == "system") {
      system = "<<SYS>>\n" + content(messages[0]) + "\n<</SYS>>\n\n";
      messages = messages.subspan(1);
    }
    for (const Message& message : messages) {
      if (message.role == "user") {
        segment(Kind::kBos, "", false);
        text("[INST] " + (system.empty() ? content(message) : strip_right(system + message.content)) +
             " [/INST]");
        system.clear();
      } else {
        text(" " + content(message) + " ", speaks(message));
        segment(Kind::kEos, "", speaks(message));
      }
    }
  }

  void llama3_turn(const std::string& role, const std::string& before, const std::string& body,
                   bool trained) {
    token("<|start_header_id|>");
    text(role);
    token("<|end_header_id|>");
    text("\n\n" + before);
    text(body, trained);
    token("<|eot_id|>", trained);
  }

  void llama3(std::span<const Message> messages, bool generation_prompt) {
    bos();
    if (!template_.system_preamble.empty()) {
      const bool given = messages[0].role == "system";
      llama3_turn("system", template_.system_preamble, given ? content(messages[0]) : "", false);
      if (given) messages = messages.subspan(1);
    }
    for (const Message& message : messages) llama3_turn(message.role, "", content(message), speaks(message));
    if (!generation_prompt) return;
    token("<|start_header_id|>");
    text("assistant");
    token("<|end_header_id|>");
    text("\n\n");
  }

  void chatml_turn(const std::string& role, const std::string& body, bool trained) {
    token("<|im_start|>");
    text(role + "\n");
    text(body, trained);
    token("<|im_end|>", trained);
    text("\n");
  }

  void chatml(std::span<const Message> messages, bool generation_prompt) {
    bos();
    if (!template_.default_system.empty() && messages[0].role != "system")
      chatml_turn("system", template_.default_system, false);
    for (const Message& message : messages) chatml_turn(message.role, content(message), speaks(message));
    if (!generation_prompt) return;
    token("<|im_start|>");
    text("assistant\n");
  }

  const ChatTemplate& template_;
  std::vector<Segment> segments_;
};

}  // namespace

std::vector<Message> as_messages(const Instruction& row) {
  std::vector<Message> messages = row.earlier;
  messages.push_back({"user", row.input.empty() ? row.instruction : row.instruction + "\n\n" + row.input});
  messages.push_back({"assistant", row.output});
  return messages;
}

std::vector<Segment> ChatTemplate::render(std::span<const Message> messages, bool generation_prompt) const {
  return Renderer(*this).conversation(messages, generation_prompt);
}

std::vector<Segment> ChatTemplate::render(const Instruction& row, bool prompt_only) const {
  if (family == TemplateFamily::kAlpaca) return Renderer(*this).stanford(row, prompt_only);
  std::vector<Message> messages = as_messages(row);
  if (prompt_only) messages.pop_back();
  return render(messages, prompt_only);
}

}  // namespace lorikeet::text
