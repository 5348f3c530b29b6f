// usage: jinja_tool
//
// For each JSON line {"template": source, "variables": {...}} of stdin one with what it renders: {"text":
// "...", "runs": [[end, origin], ...]}, or {"error": "..."}. The variables named "messages", "tools" and
// "documents" are a row's, others the template's.
#include <iostream>

#include "base/error.h"
#include "base/json.h"
#include "text/jinja/template.h"

using namespace lorikeet;

namespace {

Json answer(const Json& line) {
  try {
    const text::jinja::Template chat_template(JsonView(line, "stdin").at("template").as_string());
    std::vector<std::pair<std::string, text::jinja::Value>> variables;
    for (const auto& [name, value] : JsonView(line, "stdin").at("variables").json().object()) {
      const bool row = name == "messages" || name == "tools" || name == "documents";
      variables.emplace_back(name, text::jinja::Value::from_json(
                                       value, row ? text::jinja::kFromRow : text::jinja::kFromTemplate));
    }
    const text::jinja::MarkedText text = chat_template.render(variables);
    Json::Array runs;
    for (const auto& run : text.runs())
      runs.emplace_back(Json::Array{static_cast<std::int64_t>(run.end), static_cast<int>(run.origin)});
    return Json().set("text", text.bytes()).set("runs", std::move(runs));
  } catch (const Error& error) {
    return Json().set("error", error.what());
  }
}

}  // namespace

int main() {
  try {
    for (std::string line; std::getline(std::cin, line);)
      std::cout << answer(Json::parse(line, "stdin")).dump() << "\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 2;
  }
}
