#include "data/parse_row.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/strings.h"
#include "data/format_spec.h"

namespace lorikeet::data {
namespace {

const Json& field(const Json& record, const std::string& name, const Columns& columns,
                  const std::string& where) {
  const std::string key = key_of(name, columns);
  const Json* value = record.find(key);
  if (value == nullptr) {
    throw Error(where + ": expected key '" + key + "', found " + keys_found(record) +
                "; name the file's key in data.train.columns ({" + name +
                ": its key}), or choose another data.train.format");
  }
  return *value;
}

std::string text_of(const Json& value, const std::string& name, const std::string& where) {
  if (!value.is_string())
    throw Error(where + ": expected '" + name + "' to be a string, got " + std::string(value.kind_name()));
  return value.string();
}

std::string text_field(const Json& record, const std::string& name, const Columns& columns,
                       const std::string& where) {
  return text_of(field(record, name, columns, where), key_of(name, columns), where);
}

// A message's content: a string, or a list of parts {"type": "text", "text" or "value": string}.
std::string content_of(const Json& value, const std::string& name, const std::string& where) {
  if (!value.is_array()) return text_of(value, name, where);
  std::string text;
  const auto not_text = [&] {
    return Error(where + ": expected the parts of '" + name +
                 "' to be {\"type\": \"text\", \"text\": ...}; other kinds of content can't be trained on");
  };
  for (const Json& part : value.array()) {
    const Json* type = part.find("type");
    const Json* body = part.find("text") != nullptr ? part.find("text") : part.find("value");
    if (body == nullptr || !body->is_string() ||
        (type != nullptr && !(type->is_string() && type->string() == "text")))
      throw not_text();
    text += body->string();
  }
  return text;
}

// "train" is axolotl's name, "weight" OpenAI's, "loss_weight" LLaMA-Factory's.
bool is_trained_on(const Json& turn, const std::string& where) {
  std::optional<bool> trained;
  const char* said_by = nullptr;
  const auto say = [&](const char* key, bool value) {
    if (trained && *trained != value) {
      throw Error(where + ": '" + said_by + "' and '" + key +
                  "' contradict each other about whether this turn is trained on");
    }
    trained = value;
    said_by = key;
  };
  if (const Json* train = turn.find("train"); train != nullptr && !train->is_null()) {
    if (!train->is_bool()) {
      throw Error(where + ": expected 'train' to be true or false, got " +
                  escape_control(train->dump().substr(0, 40)));
    }
    say("train", train->boolean());
  }
  for (const char* key : {"weight", "loss_weight"}) {
    const Json* weight = turn.find(key);
    if (weight == nullptr || weight->is_null()) continue;
    if (!weight->is_number() || (weight->number() != 0 && weight->number() != 1)) {
      throw Error(where + ": expected '" + key + "' to be 0 or 1, got " +
                  escape_control(weight->dump().substr(0, 40)));
    }
    say(key, weight->number() == 1);
  }
  return trained.value_or(true);
}

// Answers with a verdict of good or bad (KTO) hold some that must not be learnt.
void require_no_verdict(const Json& record, const Columns& columns, const std::string& where) {
  const Json* label = record.find("label");
  const bool renamed = std::any_of(columns.begin(), columns.end(),
                                   [](const auto& column) { return column.second == "label"; });
  if (label == nullptr || !label->is_bool() || renamed) return;
  throw Error(where + ": found 'label': " + label->dump() +
              ", a verdict on the answer: preference data (KTO), which isn't supported here; keep the rows "
              "whose label is true, and drop the key");
}

// What a message has besides its role and content, for the template: null where there is nothing. The keys
// that only speak of the loss are left out, and those under which templates read the role and the content,
// which columns may have found elsewhere.
Json extra_of(const Json& turn, const std::string& role_key, const std::string& content_key) {
  static constexpr std::array<std::string_view, 5> kNotExtra{"role", "content", "train", "weight",
                                                             "loss_weight"};
  Json extra;
  for (const auto& [key, value] : turn.object()) {
    const bool known = key == role_key || key == content_key ||
                       std::find(kNotExtra.begin(), kNotExtra.end(), key) != kNotExtra.end();
    // Templates that ask whether there is such a member would write an empty list as a call.
    const bool calls_nothing = key == "tool_calls" && value.is_array() && value.array().empty();
    if (!known && !value.is_null() && !calls_nothing) extra.set(key, value);
  }
  return extra;
}

// The schemas of a row's tools: a list of objects, or its text; null where there are none.
Json parse_tools(const Json& record, const Columns& columns, const std::string& where) {
  const std::string key = key_of("tools", columns);
  const Json* given = record.find(key);
  if (given == nullptr || given->is_null()) return {};
  if (given->is_string() && is_blank(given->string())) return {};
  const auto fail = [&](const std::string& got) {
    return Error(where + ": expected '" + key +
                 "' to be a list of JSON schemas (objects), or such a list as a JSON text, got " + got);
  };
  const Json tools = [&] {
    if (!given->is_string()) return *given;
    try {
      return Json::parse(given->string(), "text");
    } catch (const Error& error) {
      const std::string what = error.what();
      throw fail("a text that is " + what.substr(what.find("] ") + 2));
    }
  }();
  const auto is_object = [](const Json& tool) { return tool.is_object(); };
  if (!tools.is_array() || !std::all_of(tools.array().begin(), tools.array().end(), is_object))
    throw fail(escape_control(tools.dump().substr(0, 60)));
  return tools.array().empty() ? Json() : tools;
}

// Beside a call or reasoning a message may have no text.
bool may_lack_content(const text::Message& message) {
  if (message.extra.find("tool_calls") != nullptr) return true;
  return std::any_of(text::kReasoningNames.begin(), text::kReasoningNames.end(), [&](std::string_view name) {
    const Json* reasoning = message.extra.find(name);
    return reasoning != nullptr && !(reasoning->is_string() && is_blank(reasoning->string()));
  });
}

text::Message parse_message(const Json& turn, const FormatSpec& spec, const Columns& columns,
                            const std::string& where) {
  require_object(turn, where);
  const std::string role_key = key_of(spec.of_turns[0], columns);
  const std::string content_key = key_of(spec.of_turns[1], columns);
  const std::string role = text_of(field(turn, spec.of_turns[0], columns, where), role_key, where);
  const Json* call = turn.find("function_call");
  if (role == "function_call" || role == "observation" || (call != nullptr && !call->is_null())) {
    throw Error(where +
                ": calls written as 'function_call' and 'observation' are not supported; write them as "
                "'tool_calls' of the assistant's message and messages of the role tool");
  }
  text::Message message{.role = text::role_of_speaker(role),
                        .trained = is_trained_on(turn, where),
                        .extra = extra_of(turn, role_key, content_key)};
  const Json* content = turn.find(content_key);
  message.has_content = !may_lack_content(message) || (content != nullptr && !content->is_null());
  if (message.has_content)
    message.content = content_of(field(turn, spec.of_turns[1], columns, where), content_key, where);
  return message;
}

// The row's own system prompt as a message; none where it has none.
std::vector<text::Message> system_prompt(const Json& record, const Columns& columns,
                                         const std::string& where) {
  const std::string key = key_of("system", columns);
  const Json* given = record.find(key);
  if (given == nullptr || given->is_null()) return {};
  const std::string system = text_of(*given, key, where);
  if (is_blank(system)) return {};
  return {{"system", system}};
}

text::Conversation parse_messages(const Json& record, Format format, const Columns& columns,
                                  const std::string& where) {
  const FormatSpec& spec = spec_of(format);
  const std::string& name = spec.required[0];
  const Json& turns = field(record, name, columns, where);
  if (!turns.is_array() || turns.array().empty()) {
    throw Error(where + ": expected '" + key_of(name, columns) + "' to be a list of turns, got " +
                (turns.is_array() ? "an empty list" : std::string(turns.kind_name())));
  }
  text::Conversation row{.tools = parse_tools(record, columns, where)};
  row.messages.reserve(turns.array().size() + 1);
  for (const Json& turn : turns.array()) {
    row.messages.push_back(
        parse_message(turn, spec, columns, where + ", turn " + std::to_string(row.messages.size() + 1)));
  }
  const std::vector<text::Message> system = system_prompt(record, columns, where);
  if (row.messages[0].role != "system")
    row.messages.insert(row.messages.begin(), system.begin(), system.end());
  return row;
}

// What comes before an instruction: the row's system prompt, and its history, a list of [question, answer] as
// LLaMA-Factory has it.
std::vector<text::Message> earlier_of(const Json& record, const Columns& columns, const std::string& where) {
  std::vector<text::Message> messages = system_prompt(record, columns, where);
  const std::string key = key_of("history", columns);
  const Json* given = record.find(key);
  const bool is_absent =
      given == nullptr || given->is_null() || (given->is_string() && is_blank(given->string()));
  if (is_absent) return messages;
  const auto fail = [&] {
    return Error(where + ": expected '" + key + "' to be a list of pairs [question, answer], got " +
                 escape_control(given->dump().substr(0, 60)));
  };
  if (!given->is_array()) throw fail();
  for (const Json& pair : given->array()) {
    if (!pair.is_array() || pair.array().size() != 2 || !pair.array()[0].is_string() ||
        !pair.array()[1].is_string())
      throw fail();
    messages.push_back({"user", pair.array()[0].string()});
    messages.push_back({"assistant", pair.array()[1].string()});
  }
  return messages;
}

Row parse_alpaca(const Json& record, const Columns& columns, const std::string& where) {
  const auto text = [&](const char* name) { return text_field(record, name, columns, where); };
  const std::string input_key = key_of("input", columns);
  const Json* input = record.find(input_key);
  const bool has_input = input != nullptr && !input->is_null();
  return text::Instruction{text("instruction"), has_input ? text_of(*input, input_key, where) : "",
                           text("output"), earlier_of(record, columns, where)};
}

Row parse_instruct(const Json& record, const Columns& columns, const std::string& where) {
  const auto text = [&](const char* name) { return text_field(record, name, columns, where); };
  return text::Instruction{text("prompt"), "", text("completion"), system_prompt(record, columns, where)};
}

std::vector<std::int32_t> parse_ids(const Json& value, const std::string& name, const std::string& where) {
  if (!value.is_array())
    throw Error(where + ": expected '" + name + "' to be a list of integers, got " +
                std::string(value.kind_name()));
  std::vector<std::int32_t> ids;
  ids.reserve(value.array().size());
  const auto out_of_range = [&](const Json& id) {
    return Error(where + ": expected '" + name + "' to hold 32-bit integers, element " +
                 std::to_string(ids.size()) + " is " + escape_control(id.dump().substr(0, 40)));
  };
  for (const Json& id : value.array()) {
    if (!id.is_integer() || id.integer() < INT32_MIN || id.integer() > INT32_MAX) throw out_of_range(id);
    ids.push_back(static_cast<std::int32_t>(id.integer()));
  }
  return ids;
}

// Drops the tokens at both ends that the row's attention_mask has 0 for.
void leave_out_padding(TokensRow& row, const Json& record, const Columns& columns, const std::string& where) {
  const std::string key = key_of("attention_mask", columns);
  const Json* given = record.find(key);
  if (given == nullptr || given->is_null()) return;
  const std::vector<std::int32_t> mask = parse_ids(*given, key, where);
  const auto fail = [&](const std::string& got) {
    throw Error(
        where + ": expected '" + key + "' to be as long as input_ids (" + std::to_string(row.ids.size()) +
        "), 1 for the row's own tokens, which are one run, and 0 for padding around them, got " + got);
  };
  if (mask.size() != row.ids.size()) fail("a length of " + std::to_string(mask.size()));
  const auto begin = std::find(mask.begin(), mask.end(), 1);
  const auto end = std::find(begin, mask.end(), 0);
  for (auto at = mask.begin(); at != mask.end(); ++at) {
    if (*at != (at >= begin && at < end ? 1 : 0))
      fail(std::to_string(*at) + " at " + std::to_string(at - mask.begin()));
  }
  const auto keep = [&](std::vector<std::int32_t>& values) {
    values.erase(values.begin() + (end - mask.begin()), values.end());
    values.erase(values.begin(), values.begin() + (begin - mask.begin()));
  };
  keep(row.ids);
  keep(row.labels);
}

TokensRow parse_tokens(const Json& record, const Columns& columns, const std::string& where) {
  TokensRow row;
  row.ids = parse_ids(field(record, "input_ids", columns, where), key_of("input_ids", columns), where);
  const std::string labels_key = key_of("labels", columns);
  const Json* labels = record.find(labels_key);
  row.labels = labels == nullptr || labels->is_null() ? row.ids : parse_ids(*labels, labels_key, where);
  if (row.labels.size() != row.ids.size()) {
    throw Error(where + ": expected as many labels as input_ids (" + std::to_string(row.ids.size()) +
                "), got " + std::to_string(row.labels.size()));
  }
  leave_out_padding(row, record, columns, where);
  return row;
}

}  // namespace

Row parse_row(const Json& record, Format format, const Columns& columns, const std::string& where) {
  require_object(record, where);
  if (needs_template(format)) require_no_verdict(record, columns, where);
  switch (format) {
    case Format::kAlpaca: return parse_alpaca(record, columns, where);
    case Format::kInstruct: return parse_instruct(record, columns, where);
    case Format::kChat:
    case Format::kShareGpt: return parse_messages(record, format, columns, where);
    case Format::kText: return DocumentRow{text_field(record, "text", columns, where)};
    case Format::kTokens: return parse_tokens(record, columns, where);
  }
  throw Error("[data] unknown format");
}

}  // namespace lorikeet::data
