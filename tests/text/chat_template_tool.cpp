// usage: chat_template_tool FOLDER TEMPLATE conversation|instruction
//
// Writes the built-in's Jinja source as a JSON string, then for each JSON line of stdin one with the ids that
// the folder's tokenizer gives for what the built-in renders: {"ids": [...], "text": "..."}, or {"error":
// "..."}. Lines are
// {"messages": [{"role", "content"}, ...], "generation_prompt": bool} or {"instruction", "input", "output"},
// the last one absent for a prompt alone.
#include <iostream>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_encode.h"
#include "text/chat_jinja.h"

using namespace lorikeet;

namespace {

std::vector<text::Message> messages_of(const JsonView& line, const char* key) {
  std::vector<text::Message> messages;
  if (!line.has(key)) return messages;
  for (const JsonView& turn : line.at(key).items())
    messages.push_back({turn.at("role").as_string(), turn.at("content").as_string()});
  return messages;
}

std::vector<text::Segment> render(const text::ChatTemplate& chat_template, const JsonView& line) {
  if (line.has("instruction")) {
    return chat_template.render(
        text::Instruction{line.at("instruction").as_string(), line.get_string("input", ""),
                          line.get_string("output", ""), messages_of(line, "earlier")},
        /*prompt_only=*/!line.has("output"));
  }
  return chat_template.render(messages_of(line, "messages"), line.get_bool("generation_prompt", false));
}

// The rendered text with control tokens spelt out, but for a BOS that the encoder leaves out.
std::string spell(const std::vector<text::Segment>& segments, const text::Tokenizer& tokenizer) {
  using Kind = text::Segment::Kind;
  const std::string bos = tokenizer.bos_id() ? tokenizer.token_of(*tokenizer.bos_id()) : "";
  std::string out;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const text::Segment& segment = segments[i];
    const bool doubled =
        i + 1 < segments.size() && segments[i + 1].kind == Kind::kToken && segments[i + 1].text == bos;
    if (segment.kind == Kind::kBos) {
      if (!doubled) out += bos;
    } else if (segment.kind == Kind::kEos) {
      out += tokenizer.token_of(tokenizer.eos_id().value());
    } else {
      out += segment.text;
    }
  }
  return out;
}

Json answer(const text::SegmentEncoder& encoder, const text::ChatTemplate& chat_template,
            const JsonView& line) {
  try {
    const std::vector<text::Segment> segments = render(chat_template, line);
    Json::Array ids;
    for (const text::TokenId id : encoder.encode(segments).ids) ids.emplace_back(id);
    return Json().set("ids", std::move(ids)).set("text", spell(segments, encoder.tokenizer()));
  } catch (const Error& error) {
    return Json().set("error", error.what());
  }
}

void run(const std::string& folder, const std::string& name, const std::string& rows) {
  const auto tokenizer = text::load_tokenizer(folder);
  const text::SegmentEncoder encoder(*tokenizer);
  const text::ChatTemplate& chat_template = text::builtin_chat_template(name);
  const auto kind = rows == "instruction" ? text::RowKind::kInstruction : text::RowKind::kConversation;
  std::cout << Json(text::chat_template_jinja(chat_template, kind)).dump() << "\n";
  for (std::string line; std::getline(std::cin, line);) {
    const Json json = Json::parse(line, "stdin");
    std::cout << answer(encoder, chat_template, JsonView(json, "stdin")).dump() << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: chat_template_tool FOLDER TEMPLATE conversation|instruction\n";
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 2;
  }
}
