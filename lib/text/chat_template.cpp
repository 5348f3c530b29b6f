#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/strings.h"
#include "text/chat_jinja.h"

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

struct KnownSource {
  std::string_view sha256;
  std::string_view builtin;
  std::string_view difference{};  // what else it writes than the built-in; said wherever it is recognised
};

// Sources whose rendering was compared with the built-in's, turn by turn, by
// tests/text/chat_template_test.cpp.
// The files of github.com/chujiezheng/chat_templates are meant with their layout (newlines, indents) taken
// out.
constexpr std::array<KnownSource, 14> kKnownSources{{
    // Llama-2-chat
    {"e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf", "llama2"},
    // Llama-3-Instruct as first released: it opens the assistant's turn even behind an answer, where nothing
    // is
    // trained; with a generation prompt the text is the same
    {"b75e17085cfc511ead6d4fab84b86ab3c168ec7a332568a91d0889cdcba94394", "llama3"},
    // Llama-3-Instruct
    {"4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c", "llama3"},
    // ChatML, as in transformers' documentation, with and without blanks inside the braces
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", "chatml-plain"},
    {"66edfb854931c933d3ac94f507626dd4fa2d5ca0a9b1036b11729d296a7392ac", "chatml-plain"},
    // SmolLM2-Instruct
    {"de9cde7d1b0ca0cc87459a6673e0d12fb89c070bdb24e4a30b6e4d187b226221", "smollm2"},
    // chujiezheng/chat_templates: alpaca, chatml, llama-2-chat, llama-3-instruct
    {"5ad8ab5b90448d5d2d6225cd49d25acc78c8113ab8e97969be6edffaa96c5120", "alpaca"},
    {"d039a08fa6d27111d66ad6d7a3cffb375c39b75f53d5336b62c7d2cb653e13ce", "chatml"},
    {"9a346812565526c05653f11e892cc768fec8334a75ee3b00c493967a20669556", "llama2-stripped"},
    {"2245cc67c534ac1546810b7b816ee2f61c2bab7a19034d7134b3883d340aebdb", "llama3"},
    // axolotl's llama3
    {"68da1281c0c8bd7dd19f04fc1e8435b63858cb511819beafc270b70c8821a9bf", "llama3"},
    // Qwen2.5-Instruct
    {"55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a", "qwen2.5"},
    // Llama-3.1-Instruct, Llama-3.3-Instruct
    {"93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7", "llama3.1"},
    // Llama-3.2-Instruct: a prompt that changes every day would make no two runs alike, and the date is not
    // what is learnt
    {"d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f", "llama3.1",
     "always dated 26 Jul 2024, where it writes the day on which it is rendered"},
}};

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

const KnownSource* find_known(std::string_view source) {
  const std::string hash = sha256_hex(as_jinja_reads(source));
  const auto* known = std::find_if(kKnownSources.begin(), kKnownSources.end(),
                                   [&](const KnownSource& k) { return k.sha256 == hash; });
  return known != kKnownSources.end() ? known : nullptr;
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

std::optional<ChosenTemplate> recognise_source(std::string_view source, const std::string& where) {
  if (const auto origin = find_by_jinja(as_jinja_reads(source))) {
    return ChosenTemplate{origin->chat_template, origin->chat_template->name + " (recognised " + where + ")",
                          std::string(source), origin->rows};
  }
  const KnownSource* known = find_known(source);
  if (known == nullptr) return std::nullopt;
  std::string text = std::string(known->builtin) + " (recognised " + where;
  if (!known->difference.empty()) text += ", but " + std::string(known->difference);
  return ChosenTemplate{.chat_template = find_builtin(known->builtin),
                        .description = text + ")",
                        .source = std::string(source),
                        .exact = known->difference.empty()};
}

const ChatTemplate* recognise_chat_template(std::string_view source) {
  const auto found = recognise_source(source, "");
  return found ? found->chat_template : nullptr;
}

std::string jinja_of(const ChosenTemplate& chosen, RowKind rows) {
  const bool has_two_texts = chosen.chat_template->family == TemplateFamily::kAlpaca;
  if (chosen.source && (!has_two_texts || chosen.rows == rows)) return *chosen.source;
  return chat_template_jinja(*chosen.chat_template, rows);
}

ChosenTemplate choose_chat_template(const std::string& setting,
                                    const std::optional<std::string>& checkpoint_source,
                                    bool instruction_rows) {
  if (setting != "auto") {
    if (const ChatTemplate* builtin = find_builtin(setting)) return {builtin, setting + " (as configured)"};
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(setting, ignored)) return {&builtin_chat_template(setting), ""};
    if (const auto known = recognise_source(read_file(setting, 1 << 20), "in '" + setting + "'"))
      return *known;
    throw Error("[data.chat_template] expected '" + setting +
                "' to hold a template that is known here, its text is not; " + choices());
  }
  if (checkpoint_source) {
    if (const auto known = recognise_source(*checkpoint_source, "as the checkpoint's own")) return *known;
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
