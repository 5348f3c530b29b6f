#include "text/chat_template.h"

#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/strings.h"

namespace lorikeet::text {
namespace {

constexpr const char* kLlama31Preamble = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

std::vector<ChatTemplate> make_builtins() {
  using Family = TemplateFamily;
  return {
      {.name = "alpaca",
       .family = Family::kAlpaca,
       .help = "\"### Instruction: ... ### Response: ...\", answers ended by EOS; for base models"},
      {.name = "plain",
       .family = Family::kPlain,
       .trim = false,
       .trim_system = false,
       .help = "BOS, prompt and answer just as they are, EOS; for base models"},
      {.name = "llama2",
       .family = Family::kLlama2,
       .trim_system = false,
       .any_order = false,
       .help = "Llama-2-chat: \"[INST] <<SYS>> ... [/INST] answer\""},
      {.name = "llama3", .family = Family::kLlama3, .help = "Llama-3-Instruct: headers and <|eot_id|>"},
      {.name = "llama3.1",
       .family = Family::kLlama3,
       .system_preamble = kLlama31Preamble,
       .help = "Llama-3.1-Instruct: llama3 with its knowledge-date system turn, dated 26 Jul 2024"},
      {.name = "chatml",
       .family = Family::kChatml,
       .help = "<|im_start|>role ... <|im_end|>, contents stripped, BOS in front"},
      {.name = "chatml-plain",
       .family = Family::kChatml,
       .bos = false,
       .trim = false,
       .trim_system = false,
       .help = "<|im_start|>role ... <|im_end|>, contents as they are, no BOS"},
      {.name = "qwen2.5",
       .family = Family::kChatml,
       .bos = false,
       .trim = false,
       .trim_system = false,
       .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
       .help = "chatml-plain with Qwen2.5's system turn where a conversation has none"},
      {.name = "smollm2",
       .family = Family::kChatml,
       .bos = false,
       .trim = false,
       .trim_system = false,
       .default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
       .help = "chatml-plain with SmolLM2's system turn where a conversation has none"},
  };
}

struct KnownSource {
  std::string_view sha256;
  std::string_view builtin;
};

// Sources whose rendering was compared with the built-in's, turn by turn, by
// tests/text/chat_template_test.cpp.
constexpr std::array<KnownSource, 0> kKnownSources{};

// Jinja reads CRLF as LF and drops one final newline, so neither changes what a template renders.
std::string source_hash(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i];
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return sha256_hex(text);
}

std::string choices() {
  std::vector<std::string> lines;
  for (const ChatTemplate& builtin : builtin_chat_templates())
    lines.push_back("  " + builtin.name + ": " + builtin.help);
  return "set data.chat_template to one of:\n" + join(lines, "\n");
}

const ChatTemplate* find_builtin(std::string_view name) {
  for (const ChatTemplate& builtin : builtin_chat_templates())
    if (builtin.name == name) return &builtin;
  return nullptr;
}

}  // namespace

const std::vector<ChatTemplate>& builtin_chat_templates() {
  static const std::vector<ChatTemplate> kBuiltins = make_builtins();
  return kBuiltins;
}

const ChatTemplate& builtin_chat_template(std::string_view name) {
  if (const ChatTemplate* builtin = find_builtin(name)) return *builtin;
  std::vector<std::string> names{"auto"};
  for (const ChatTemplate& builtin : builtin_chat_templates()) names.push_back(builtin.name);
  throw Error("[data.chat_template] expected auto, a built-in's name or a file, got '" +
              escape_control(name) + "'" + did_you_mean(name, names) + "; " + choices());
}

const ChatTemplate* recognise_chat_template(std::string_view source) {
  const std::string hash = source_hash(source);
  for (const KnownSource& known : kKnownSources)
    if (known.sha256 == hash) return find_builtin(known.builtin);
  return nullptr;
}

ChosenTemplate choose_chat_template(const std::string& setting,
                                    const std::optional<std::string>& checkpoint_source,
                                    bool instruction_rows) {
  if (setting != "auto") {
    if (const ChatTemplate* builtin = find_builtin(setting)) return {builtin, setting + " (as configured)"};
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(setting, ignored)) return {&builtin_chat_template(setting), ""};
    if (const ChatTemplate* known = recognise_chat_template(read_file(setting, 1 << 20)))
      return {known, known->name + " (recognised in '" + setting + "')"};
    throw Error("[data.chat_template] expected '" + setting +
                "' to hold a template that is known here, its text is not; " + choices());
  }
  if (checkpoint_source) {
    if (const ChatTemplate* known = recognise_chat_template(*checkpoint_source))
      return {known, known->name + " (recognised as the checkpoint's own)"};
    throw Error("[data.chat_template] auto: the checkpoint has a chat template (" +
                std::to_string(checkpoint_source->size()) +
                " characters) that equals none of the known ones; " + choices());
  }
  if (instruction_rows) {
    return {find_builtin("alpaca"),
            "alpaca (the default for instructions: the checkpoint has no chat template)"};
  }
  throw Error(
      "[data.chat_template] auto: the checkpoint has no chat template, and these rows are "
      "conversations; " +
      choices());
}

}  // namespace lorikeet::text
