#include "text/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "text/chat_jinja.h"
#include "text/folder_config.h"
#include "text/jinja_chat.h"

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
      {.name = "llama2-stripped",
       .family = Family::kLlama2,
       .any_order = false,
       .help = "llama2 with its system text stripped"},
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

// Jinja reads CRLF as LF and drops one final newline, so neither changes what a template renders.
std::string as_jinja_reads(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i];
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
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

std::string role_of_speaker(const std::string& speaker) {
  static const std::map<std::string, std::string, std::less<>> kRoles{{"human", "user"},
                                                                      {"gpt", "assistant"},
                                                                      {"chatgpt", "assistant"},
                                                                      {"model", "assistant"},
                                                                      {"bot", "assistant"}};
  const auto found = kRoles.find(speaker);
  return found == kRoles.end() ? speaker : found->second;
}

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

ChosenTemplate template_of_source(const TemplateSources& sources, const std::string& where,
                                  const std::string& date) {
  if (const auto origin = find_by_jinja(as_jinja_reads(sources.main.value()))) {
    return {.chat_template = origin->chat_template,
            .description = origin->chat_template->name + " (recognised as " + where + ")",
            .name = origin->chat_template->name,
            .source = sources.main,
            .rows = origin->rows};
  }
  return {
      .description = where + ", in Jinja" + (sources.with_tools ? " (another one for rows with tools)" : ""),
      .name = where,
      .source = sources.main,
      .jinja = std::make_shared<const JinjaChat>(sources, date)};
}

std::string jinja_of(const ChosenTemplate& chosen, RowKind rows) {
  if (chosen.chat_template == nullptr) return chosen.source.value();
  const bool has_two_texts = chosen.chat_template->family == TemplateFamily::kAlpaca;
  if (chosen.source && (!has_two_texts || chosen.rows == rows)) return *chosen.source;
  return chat_template_jinja(*chosen.chat_template, rows);
}

ChosenTemplate choose_chat_template(const std::string& setting, const TemplateSources& checkpoint,
                                    bool instruction_rows, const std::string& date) {
  const auto builtin = [](const ChatTemplate& chosen, const std::string& why) {
    return ChosenTemplate{
        .chat_template = &chosen, .description = chosen.name + " (" + why + ")", .name = chosen.name};
  };
  if (setting == "auto") {
    if (checkpoint.main) return template_of_source(checkpoint, "the checkpoint's own", date);
    if (instruction_rows)
      return builtin(*find_builtin("alpaca"),
                     "the default for instructions: the checkpoint has no chat template");
    throw Error(
        "[data.chat_template] auto: the checkpoint has no chat template, and these rows are "
        "conversations; " +
        choices());
  }
  if (const ChatTemplate* named = find_builtin(setting)) return builtin(*named, "as configured");
  std::error_code ignored;
  const std::string where = "that of '" + escape_control(setting) + "'";
  if (std::filesystem::is_directory(setting, ignored)) {
    TemplateSources own = templates_of(read_folder_config(setting));
    if (!own.main)
      throw Error("[data.chat_template] expected a chat template in '" + setting + "', found none");
    own.tokens = checkpoint.tokens;
    return template_of_source(own, where, date);
  }
  if (!std::filesystem::is_regular_file(setting, ignored)) builtin_chat_template(setting);  // throws
  const TemplateSources file{.main = read_file(setting, 1 << 20), .tokens = checkpoint.tokens};
  return template_of_source(file, where, date);
}

}  // namespace lorikeet::text
