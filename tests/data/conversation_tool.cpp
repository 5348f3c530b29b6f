// usage: conversation_tool FOLDER
//
// For each JSON line {"template": source, "messages": [...], "tools": [...], "question": bool, "train_on":
// "roles" | "last" | "all"} of stdin (the last three may be absent) one with what the folder's tokenizer
// makes of it by this template in Jinja: {"ids": [...], "trained": [0 or 1, ...]}, or {"error": "..."}.
// Messages are read as rows of the format chat.
#include <iostream>

#include "base/error.h"
#include "base/json.h"
#include "data/parse_row.h"
#include "text/prompt_encoder.h"

using namespace lorikeet;

namespace {

text::TrainOn train_on(const std::string& name) {
  if (name == "all") return text::TrainOn::kAll;
  return name == "last" ? text::TrainOn::kLast : text::TrainOn::kRoles;
}

Json answer(const text::Tokenizer& tokenizer, const JsonView& line) {
  try {
    const text::TemplateSources sources{.main = line.at("template").as_string(),
                                        .tokens = tokenizer.templates().tokens};
    const text::ChosenTemplate chosen{.jinja = std::make_shared<text::JinjaChat>(sources, "2024-07-26")};
    const text::PromptEncoder encoder(chosen, tokenizer);
    const data::Row row = data::parse_row(line.json(), data::Format::kChat, {}, "row");
    const auto& conversation = std::get<text::Conversation>(row);
    if (line.get_bool("question", false)) {
      Json::Array ids;
      for (const text::TokenId id : encoder.question(conversation)) ids.emplace_back(id);
      return Json().set("ids", std::move(ids));
    }
    const auto prompt = encoder.encode(conversation, train_on(line.get_string("train_on", "roles")));
    Json::Array ids, trained;
    for (const text::TokenId id : prompt.ids) ids.emplace_back(id);
    for (const std::uint8_t flag : prompt.trained) trained.emplace_back(static_cast<int>(flag));
    return Json().set("ids", std::move(ids)).set("trained", std::move(trained));
  } catch (const Error& error) {
    return Json().set("error", error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: conversation_tool FOLDER\n";
    return 2;
  }
  try {
    const auto tokenizer = text::load_tokenizer(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      const Json json = Json::parse(line, "stdin");
      std::cout << answer(*tokenizer, JsonView(json, "stdin")).dump() << "\n";
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 2;
  }
}
