// Jinja sources of the built-in templates: one for each family of chat_render.cpp, with that family's
// renderer as its model. Every tag strips the white space around it, so that the layout here is not part of
// the text, whatever an engine does with newlines behind tags.
#include "text/chat_jinja.h"

#include <array>

namespace lorikeet::text {
namespace {

// A text as a Jinja string.
std::string quote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\'' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "'";
}

// "{{name}}" in `source` becomes `value`.
std::string fill(std::string source, const std::string& name, const std::string& value) {
  const std::string mark = "{{" + name + "}}";
  for (std::size_t at = source.find(mark); at != std::string::npos; at = source.find(mark, at + value.size()))
    source.replace(at, mark.size(), value);
  return source;
}

constexpr std::string_view kBadRole =
    R"({{- raise_exception('Expected role system, user or assistant, got ' + message['role']) -}})";

constexpr std::string_view kPlain = R"({{- bos_token or '' -}}
{%- for message in messages -%}
  {%- if message['role'] not in ['system', 'user', 'assistant'] -%}
    {{bad_role}}
  {%- endif -%}
  {{- message['content'] -}}
  {%- if message['role'] == 'assistant' -%}
    {{- eos_token -}}
  {%- endif -%}
{%- endfor -%})";

constexpr std::string_view kAlpacaConversation = R"({{- bos_token or '' -}}
{%- for message in messages -%}
  {%- if message['role'] == 'system' -%}
    {{- (message['content'] | trim) + '\n\n' -}}
  {%- elif message['role'] == 'user' -%}
    {{- '### Instruction:\n' + (message['content'] | trim) + '\n\n' -}}
  {%- elif message['role'] == 'assistant' -%}
    {{- '### Response:\n' + (message['content'] | trim) + eos_token + '\n\n' -}}
  {%- else -%}
    {{bad_role}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '### Response:\n' -}}
{%- endif -%})";

// The prompts of github.com/tatsu-lab/stanford_alpaca, train.py, which a user's turn ends with the answer's
// heading.
constexpr std::string_view kAlpacaInstruction = R"({{- bos_token or '' -}}
{%- for message in messages -%}
  {%- if message['role'] == 'system' -%}
    {{- message['content'] + '\n\n' -}}
  {%- elif message['role'] == 'user' -%}
    {%- if message['input'] -%}
      {{- 'Below is an instruction that describes a task, paired with an input that provides further context. ' -}}
      {{- 'Write a response that appropriately completes the request.\n\n' -}}
      {{- '### Instruction:\n' + message['content'] + '\n\n### Input:\n' + message['input'] -}}
    {%- else -%}
      {{- 'Below is an instruction that describes a task. ' -}}
      {{- 'Write a response that appropriately completes the request.\n\n' -}}
      {{- '### Instruction:\n' + message['content'] -}}
    {%- endif -%}
    {{- '\n\n### Response:\n' -}}
  {%- elif message['role'] == 'assistant' -%}
    {{- message['content'] + eos_token -}}
    {%- if not loop.last -%}
      {{- '\n\n' -}}
    {%- endif -%}
  {%- else -%}
    {{bad_role}}
  {%- endif -%}
{%- endfor -%})";

constexpr std::string_view kSystemApart = R"({%- if messages[0]['role'] == 'system' -%}
  {%- set system = {{system}} -%}
  {%- set turns = messages[1:] -%}
{%- else -%}
  {%- set system = '' -%}
  {%- set turns = messages -%}
{%- endif -%}
)";

constexpr std::string_view kLlama2 = R"({%- for message in turns -%}
  {%- if message['role'] != ('user' if loop.index0 % 2 == 0 else 'assistant') -%}
    {{- raise_exception('Expected turns to alternate user, assistant, ...; got ' + message['role']) -}}
  {%- endif -%}
  {%- if message['role'] == 'user' -%}
    {{- bos_token or '' -}}
    {{- '[INST] ' + (((system if loop.first else '') + message['content']) | trim) + ' [/INST]' -}}
  {%- else -%}
    {{- ' ' + (message['content'] | trim) + ' ' + eos_token -}}
  {%- endif -%}
{%- endfor -%})";

constexpr std::string_view kLlama3 = R"({%- for message in {{turns}} -%}
  {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' -}}
  {{- (message['content'] | trim) + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%})";

constexpr std::string_view kChatml = R"({%- for message in messages -%}
  {{- '<|im_start|>' + message['role'] + '\n' + {{content}} + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
{%- endif -%})";

std::string llama2(const ChatTemplate& t) {
  const std::string content = t.trim_system ? "(messages[0]['content'] | trim)" : "messages[0]['content']";
  return fill(std::string(kSystemApart), "system", "'<<SYS>>\\n' + " + content + " + '\\n<</SYS>>\\n\\n'") +
         std::string(kLlama2);
}

std::string llama3(const ChatTemplate& t) {
  const std::string bos = "{{- bos_token or '' -}}\n";
  if (t.system_preamble.empty()) return bos + fill(std::string(kLlama3), "turns", "messages");
  return fill(std::string(kSystemApart), "system", "messages[0]['content'] | trim") + bos +
         "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' -}}\n{{- " + quote(t.system_preamble) +
         " + system + '<|eot_id|>' -}}\n" + fill(std::string(kLlama3), "turns", "turns");
}

std::string chatml(const ChatTemplate& t) {
  std::string source;
  // A checkpoint may name the turn's own token its BOS, which is not doubled.
  if (t.bos) {
    source += "{%- if bos_token and bos_token != '<|im_start|>' -%}\n  {{- bos_token -}}\n{%- endif -%}\n";
  }
  if (!t.default_system.empty()) {
    source += "{%- if messages[0]['role'] != 'system' -%}\n  {{- " +
              quote("<|im_start|>system\n" + t.default_system + "<|im_end|>\n") + " -}}\n{%- endif -%}\n";
  }
  return source +
         fill(std::string(kChatml), "content", t.trim ? "(message['content'] | trim)" : "message['content']");
}

}  // namespace

std::string chat_template_jinja(const ChatTemplate& chat_template, RowKind rows) {
  const auto with_roles = [](std::string_view source) {
    return fill(std::string(source), "bad_role", std::string(kBadRole));
  };
  switch (chat_template.family) {
    case TemplateFamily::kPlain: return with_roles(kPlain);
    case TemplateFamily::kAlpaca:
      return with_roles(rows == RowKind::kInstruction ? kAlpacaInstruction : kAlpacaConversation);
    case TemplateFamily::kLlama2: return llama2(chat_template);
    case TemplateFamily::kLlama3: return llama3(chat_template);
    case TemplateFamily::kChatml: return chatml(chat_template);
  }
  return "";
}

std::optional<JinjaOrigin> find_by_jinja(std::string_view source) {
  static constexpr std::array kKinds{RowKind::kConversation, RowKind::kInstruction};
  for (const ChatTemplate& builtin : builtin_chat_templates()) {
    for (const RowKind rows : kKinds) {
      if (chat_template_jinja(builtin, rows) == source) return JinjaOrigin{&builtin, rows};
    }
  }
  return std::nullopt;
}

}  // namespace lorikeet::text
