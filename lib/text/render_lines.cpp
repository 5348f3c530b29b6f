#include "text/render_lines.h"

#include <algorithm>
#include <array>
#include <istream>
#include <ostream>
#include <string_view>

#include "base/error.h"
#include "base/strings.h"
#include "text/jinja_chat.h"

namespace lorikeet::text {
namespace {

void require_tools(const JsonView& tools) {
  for (const JsonView& tool : tools.items())
    if (!tool.json().is_object()) tool.fail("a tool's JSON schema, an object");
}

}  // namespace

ConversationRenderer::ConversationRenderer(std::string_view source, Options options)
    : template_(source), options_(std::move(options)) {
  jinja::require_date(options_.render.date);
  if (!options_.tools.is_null()) require_tools(JsonView(options_.tools, "tools"));
  for (const auto& [name, token] : options_.tokens) variables_.emplace_back(name, jinja::Value::text(token));
  variables_.emplace_back("tools", options_.tools.is_null()
                                       ? jinja::Value(jinja::None{})
                                       : jinja::Value::from_json(options_.tools, jinja::kFromRow));
  variables_.emplace_back("documents", jinja::None{});
  variables_.emplace_back("add_generation_prompt", options_.add_generation_prompt);
}

jinja::MarkedText ConversationRenderer::render(const JsonView& conversation) const {
  const std::vector<JsonView> messages = conversation.items();
  if (messages.empty())
    throw Error("[" + conversation.where() + "] expected a conversation of at least one message, got none");
  Json::Array plain;
  plain.reserve(messages.size());
  for (const JsonView& message : messages) {
    if (!message.json().is_object()) message.fail("a message, an object");
    plain.push_back(as_templates_read(message.json()));
  }
  std::vector<std::pair<std::string, jinja::Value>> variables = variables_;
  variables.emplace_back("messages", jinja::Value::from_json(Json(std::move(plain)), jinja::kFromRow));
  try {
    return template_.render(variables, options_.render);
  } catch (const Error& error) {
    throw Error("[" + conversation.where() + "] " + error.what(), error.kind());
  }
}

const std::string& folder_template(const FolderConfig& config, bool with_tools, const std::string& where) {
  const auto& all = config.chat_templates;
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const auto& named : all) names.push_back(escape_control(named.first));
  for (const std::string_view name : {"tool_use", "default"}) {
    if (name == "tool_use" && !with_tools) continue;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& named) { return named.first == name; });
    if (found != all.end()) return found->second;
  }
  if (names.empty())
    throw Error(
        "[" + where +
        "] expected a chat template in tokenizer_config.json or chat_template.jinja, found none; name a "
        "template's file");
  throw Error("[" + where + "] expected a chat template called default, found only " + join(names, ", ") +
              "; name a template's file");
}

void render_lines(const ConversationRenderer& renderer, std::istream& in, std::ostream& out) {
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = "line " + std::to_string(++number);
    try {
      const Json conversation = Json::parse(line, where);
      out << Json(renderer.render(JsonView(conversation, where)).bytes()).dump() << '\n';
    } catch (const Error&) {
      out.flush();
      throw;
    }
  }
  out.flush();
}

}  // namespace lorikeet::text
