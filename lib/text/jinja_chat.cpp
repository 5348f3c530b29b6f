#include "text/jinja_chat.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/strings.h"
#include "text/jinja/lexer.h"
#include "text/jinja/text_functions.h"

namespace lorikeet::text {
namespace {

constexpr std::string_view kReasoning = kReasoningNames[0], kThinking = kReasoningNames[1];
constexpr std::size_t kMessageTags = jinja::kOriginTags - 1;  // 0 is no message's

// Templates make control tokens of roles ("<|" + role + "|>"). These names are no text of the row's own.
bool is_known_role(std::string_view role) {
  static constexpr std::array<std::string_view, 8> kRoles{"system", "user",      "assistant", "tool",
                                                          "model",  "developer", "ipython",   "function"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

jinja::Value value_of(const Message& message, jinja::Origin origin) {
  std::vector<std::pair<jinja::Value, jinja::Value>> members;
  const auto add = [&](const std::string& name, jinja::Value value) {
    members.emplace_back(jinja::Value::text(name, origin), std::move(value));
  };
  const jinja::Value role =
      jinja::Value::text(message.role, is_known_role(message.role) ? jinja::kFromTemplate : origin);
  if (message.extra.is_null()) {
    add("role", role);
    if (message.has_content) add("content", jinja::Value::text(message.content, origin));
    return jinja::Value::dict(std::move(members));
  }
  Json whole;
  whole.set("role", message.role);
  if (message.has_content) whole.set("content", message.content);
  for (const auto& [name, value] : message.extra.object()) whole.set(name, value);
  const Json read = as_templates_read(whole);
  for (const auto& [name, value] : read.object())
    add(name, name == "role" ? role : jinja::Value::from_json(value, origin));
  return jinja::Value::dict(std::move(members));
}

// Of tools or of tool calls, which name their functions in the same ways.
std::vector<std::string> function_names(const Json& list) {
  std::vector<std::string> names;
  if (!list.is_array()) return names;
  for (const Json& one : list.array()) {
    const Json* function = one.find("function");
    const Json* name = (function != nullptr ? *function : one).find("name");
    if (name != nullptr && name->is_string()) names.push_back(name->string());
  }
  return names;
}

std::string reasoning_of(const Message& message) {
  for (const std::string_view name : kReasoningNames) {
    const Json* reasoning = message.extra.find(name);
    if (reasoning != nullptr && reasoning->is_string() && !is_blank(reasoning->string()))
      return reasoning->string();
  }
  return "";
}

// See JinjaChat::literals.
std::vector<std::string> literals_of(std::string_view source) {
  using Kind = jinja::TokenKind;
  const auto is_mark = [](char c) {
    return static_cast<unsigned char>(c) > ' ' && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') &&
           !(c >= 'A' && c <= 'Z') && c != '_';
  };
  std::vector<std::string> literals;
  const std::vector<jinja::Token> tokens = jinja::tokenize(jinja::normalize_source(source));
  for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
    const std::string& text = tokens[i].text;
    const jinja::Token &left = tokens[i - 1], &right = tokens[i + 1];
    const bool is_searched_for = right.kind == Kind::kName && (right.text == "in" || right.text == "not");
    const bool is_written = left.kind == Kind::kVariableBegin || left.text == "+" || left.text == "~";
    if (tokens[i].kind == Kind::kString && text.size() > 2 && (is_searched_for || !is_written) &&
        std::any_of(text.begin(), text.end(), is_mark))
      literals.push_back(text);
  }
  std::sort(literals.begin(), literals.end());
  literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
  return literals;
}

std::string without_white(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
  return text;
}

// Whether a part of a learnt answer's content isn't there. Templates trim texts, and write by themselves the
// marks around reasoning that they found in a content, so where fewer bytes of the content are there than it
// has, all that is written is searched for it.
bool cuts_answers(const std::vector<Message>& messages, const jinja::MarkedText& rendered, TrainOn train_on) {
  std::array<std::size_t, jinja::kOriginTags> written{}, said{};
  std::vector<std::size_t> learnt;
  for (std::size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role != "assistant") continue;
    if (train_on == TrainOn::kAll || messages[i].trained) learnt.push_back(i);
    if (train_on == TrainOn::kLast) break;
  }
  for (const std::size_t i : learnt) said.at(1 + i % kMessageTags) += trim(messages[i].content).size();
  std::size_t begin = 0;
  for (const jinja::MarkedText::Run& run : rendered.runs()) {
    written.at(jinja::tag_of(run.origin)) += run.end - begin;
    begin = run.end;
  }
  std::string all;
  for (const std::size_t i : learnt) {
    const std::size_t tag = 1 + i % kMessageTags;
    if (messages[i].extra.is_null() && written.at(tag) >= said.at(tag)) continue;
    if (all.empty()) all = without_white(rendered.bytes());
    const jinja::MarkedText content = stripped(jinja::MarkedText(messages[i].content), {}, true, true);
    if (all.find(without_white(content.bytes())) == std::string::npos) return true;
  }
  return false;
}

// Templates trim texts.
std::string first_line(const std::string& text) {
  const std::string trimmed = trim(text);
  return trim(trimmed.substr(0, trimmed.find('\n')));
}

}  // namespace

Json as_templates_read(const Json& message) {
  Json::Object members;
  const Json* reasoning = nullptr;
  for (const std::string_view name : kReasoningNames) {
    const Json* found = message.find(name);
    if (reasoning == nullptr && found != nullptr && !found->is_null()) reasoning = found;
  }
  // transformers' {"thinking": reasoning, **message}: first, with the message's own value where it has one.
  const Json* thinking = message.find(kThinking);
  if (reasoning != nullptr)
    members.emplace_back(kThinking, thinking == nullptr || thinking->is_null() ? *reasoning : *thinking);
  for (const auto& [name, value] : message.object())
    if (!value.is_null() && name != kThinking) members.emplace_back(name, value);
  Json result(std::move(members));
  if (reasoning != nullptr) result.set(kReasoning, *reasoning);
  return result;
}

JinjaChat::JinjaChat(const TemplateSources& sources, const std::string& date)
    : main_(sources.main.value()), literals_(literals_of(*sources.main)), options_{.date = date} {
  jinja::require_date(date);
  if (sources.with_tools) with_tools_ = std::make_unique<const jinja::Template>(*sources.with_tools);
  for (const auto& [name, token] : sources.tokens) variables_.emplace_back(name, jinja::Value::text(token));
  variables_.emplace_back("documents", jinja::None{});
}

JinjaChat::Values JinjaChat::values_of(std::span<const Message> messages) {
  Values values;
  values.reserve(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i)
    values.push_back(value_of(messages[i], jinja::tagged_origin(1 + i % kMessageTags)));
  return values;
}

const jinja::Template& JinjaChat::template_for(const Json& tools) const {
  return with_tools_ != nullptr && !tools.is_null() ? *with_tools_ : main_;
}

jinja::MarkedText JinjaChat::render(std::span<const jinja::Value> messages, const Json& tools,
                                    bool generation_prompt) const {
  std::vector<std::pair<std::string, jinja::Value>> variables = variables_;
  variables.emplace_back("tools", tools.is_null() ? jinja::Value(jinja::None{})
                                                  : jinja::Value::from_json(tools, jinja::kFromRow));
  variables.emplace_back("add_generation_prompt", generation_prompt);
  variables.emplace_back("messages", jinja::Value::list(Values(messages.begin(), messages.end())));
  return template_for(tools).render(variables, options_);
}

bool leaves_out_content(std::span<const Message> messages, const jinja::MarkedText& rendered) {
  std::array<bool, jinja::kOriginTags> written{};
  for (const jinja::MarkedText::Run& run : rendered.runs()) written.at(jinja::tag_of(run.origin)) = true;
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (!is_blank(messages[i].content) && !written.at(1 + i % kMessageTags)) return true;
  return false;
}

bool leaves_out_something(const Conversation& row, const jinja::MarkedText& rendered, TrainOn train_on) {
  const std::vector<Message>& messages = row.messages;
  if (leaves_out_content(messages, rendered) || cuts_answers(messages, rendered, train_on)) return true;
  const auto is_plain = [](const Message& message) { return message.extra.is_null(); };
  if (row.tools.is_null() && std::all_of(messages.begin(), messages.end(), is_plain)) return false;
  std::array<std::string, jinja::kOriginTags> written;  // by each message
  std::size_t begin = 0;
  for (const jinja::MarkedText::Run& run : rendered.runs()) {
    written.at(jinja::tag_of(run.origin)).append(rendered.bytes(), begin, run.end - begin);
    begin = run.end;
  }
  // As it is, or as `tojson` writes it.
  const auto lacks = [](const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return false;
    const std::string quoted = Json(part).dump();
    return text.find(quoted.substr(1, quoted.size() - 2)) == std::string::npos;
  };
  for (const std::string& name : function_names(row.tools))
    if (lacks(rendered.bytes(), name)) return true;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& own = written.at(1 + i % kMessageTags);
    if (const Json* calls = messages[i].extra.find("tool_calls")) {
      for (const std::string& name : function_names(*calls))
        if (lacks(own, name)) return true;
      if (lacks(own, first_line(messages[i].content))) return true;
    }
    const bool last_answer = i + 1 == messages.size() && messages[i].role == "assistant";
    if (last_answer && lacks(own, first_line(reasoning_of(messages[i])))) return true;
  }
  return false;
}

std::size_t message_of_tag(std::size_t tag, std::size_t near, std::size_t count) {
  const std::size_t first = tag - 1;
  if (near <= first) return first;
  const std::size_t below = first + (near - first) / kMessageTags * kMessageTags;
  const std::size_t above = below + kMessageTags;
  return above < count && above - near < near - below ? above : below;
}

}  // namespace lorikeet::text
