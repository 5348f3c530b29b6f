#include "text/render_lines.h"

#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::text;
using Catch::Matchers::Contains;

namespace {

using Options = ConversationRenderer::Options;

std::string lines(const std::string& source, const std::string& input, const Options& options = {}) {
  std::istringstream in(input);
  std::ostringstream out;
  render_lines(ConversationRenderer(source, options), in, out);
  return out.str();
}

FolderConfig config_of(const std::vector<std::pair<std::string, std::string>>& files) {
  const test::TemporaryFolder folder;
  for (const auto& [name, text] : files) {
    std::filesystem::create_directories((folder / name).parent_path());
    write_file_atomic(folder / name, text);
  }
  return read_folder_config(folder.path());
}

}  // namespace

TEST_CASE("conversations are rendered line by line, with tokens, tools and the generation prompt") {
  const std::string source =
      "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if tools %}{{ tools | length }}{% endif %}{% if add_generation_prompt %}>{% endif %}"
      "{{ documents is none }}{{ eos_token is defined }}";
  const std::string input =
      "[{\"role\": \"user\", \"content\": \"é\"}]\n[{\"role\": \"a\", \"content\": \"b\"}]\n";
  CHECK(lines(source, input, {.tokens = {{"bos_token", "<s>"}}}) ==
        "\"<s>user: é\\nTrueFalse\"\n\"<s>a: b\\nTrueFalse\"\n");
  const Options options{.tools = Json(Json::Array{Json().set("name", "f")}), .add_generation_prompt = true};
  CHECK(lines("{{ tools[0].name }}{{ add_generation_prompt }}", "[{}]", options) == "\"fTrue\"\n");
  CHECK(lines(source, "").empty());
}

TEST_CASE("messages come to the template without nulls, and with reasoning under the names it reads") {
  CHECK(lines("{{ messages[0] }}", R"([{"role": "user", "content": null, "n": {"x": null}}])") ==
        "\"{'role': 'user', 'n': {'x': None}}\"\n");
  CHECK(lines("{{ messages[0] }}", R"([{"reasoning": "r"}])") ==
        "\"{'thinking': 'r', 'reasoning': 'r', 'reasoning_content': 'r'}\"\n");
  CHECK(lines("{{ messages[0] }}", R"([{"reasoning_content": null, "thinking": "t", "role": "a"}])") ==
        "\"{'thinking': 't', 'role': 'a', 'reasoning_content': 't'}\"\n");
  // `thinking` comes first, wherever the row has it.
  CHECK(lines("{{ messages[0] }}", R"([{"role": "a", "reasoning_content": "r", "thinking": "t"}])") ==
        "\"{'thinking': 't', 'role': 'a', 'reasoning_content': 'r'}\"\n");
}

TEST_CASE("the messages' text is a row's, tokens and template are not") {
  const std::string text = R"([{"content": "<s>"}])";
  const Json conversation = Json::parse(text, "test");
  const ConversationRenderer renderer("{{ bos_token }}{{ messages[0].content }}",
                                      {.tokens = {{"bos_token", "<s>"}}});
  const jinja::MarkedText out = renderer.render(JsonView(conversation, "test"));
  REQUIRE(out.bytes() == "<s><s>");
  CHECK(out.origin_at(2) == jinja::kFromTemplate);
  CHECK(out.origin_at(3) == jinja::kFromRow);
}

TEST_CASE("bad input is named by its line, what stands before is written") {
  std::istringstream in("[{\"c\": 1}]\n[]\n");
  std::ostringstream out;
  const ConversationRenderer renderer("{{ messages[0].c }}", {});
  CHECK_THAT(test::error_text([&] { render_lines(renderer, in, out); }),
             Contains("[line 2]") && Contains("at least one message"));
  CHECK(out.str() == "\"1\"\n");
  CHECK_THAT(test::error_text([] { lines("", "[1]"); }), Contains("expected a message, an object, got 1"));
  CHECK_THAT(test::error_text([] { lines("", "{}"); }), Contains("expected an array"));
  CHECK_THAT(test::error_text([] { lines("", "[{}"); }), Contains("line 1"));
  CHECK_THAT(test::error_text([] { lines("\n {{ raise_exception('no') }}", "[{}]"); }),
             Contains("[line 1]") && Contains("line 2, column 5 of the template") && Contains("no"));
  CHECK_THAT(test::error_text([] { lines("", "", {.tools = Json::parse("[3]", "t")}); }), Contains("tool"));
  for (const char* date : {"2024-13-01", "2023-02-29", "2024-7-26", "today", "0x24-07-26"})
    CHECK_THAT(test::error_text([&] { lines("", "", {.render = {.date = date}}); }),
               Contains("expected a date such as 2024-07-26"));
  CHECK(lines("{{ strftime_now('%d %B') }}", "[{}]", {.render = {.date = "2024-02-29"}}) ==
        "\"29 February\"\n");
}

TEST_CASE("a folder's templates and names of tokens are those that transformers takes") {
  const std::string list =
      R"("chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}])";
  FolderConfig config = config_of({{"tokenizer_config.json", "{" + list + "}"}});
  CHECK(folder_template(config, false, "m") == "d");
  CHECK(folder_template(config, true, "m") == "t");
  CHECK(config.chat_template == "d");
  config = config_of({{"tokenizer_config.json", "{" + list + "}"}, {"chat_template.jinja", "j"}});
  CHECK(folder_template(config, true, "m") == "j");
  CHECK(config.chat_template == "j");
  config = config_of({{"chat_template.jinja", "j"}, {"additional_chat_templates/tool_use.jinja", "u"}});
  CHECK(folder_template(config, false, "m") == "j");
  CHECK(folder_template(config, true, "m") == "u");
  CHECK_THAT(test::error_text([] { folder_template(config_of({}), false, "m"); }),
             Contains("[m] expected a chat template"));
  CHECK_THAT(test::error_text([] {
               folder_template(config_of({{"additional_chat_templates/rag.jinja", ""}}), true, "m");
             }),
             Contains("found only rag"));

  const std::string named =
      R"("bos_token": "<s>", "image_token": "<i>", "add_bos_token": true, "pad_token": null,
         "extra_special_tokens": {"audio": "<a>"})";
  const std::string older = R"({"bos_token": {"content": "<b>"}, "cls_token": "<c>"})";
  using Names = std::vector<std::pair<std::string, std::string>>;
  config = config_of({{"tokenizer_config.json", "{" + named + "}"}, {"special_tokens_map.json", older}});
  CHECK(config.token_names ==
        Names{{"bos_token", "<b>"}, {"image_token", "<i>"}, {"audio", "<a>"}, {"cls_token", "<c>"}});
  config = config_of({{"tokenizer_config.json", "{" + named + R"(, "added_tokens_decoder": {}})"},
                      {"special_tokens_map.json", older}});
  CHECK(config.token_names == Names{{"bos_token", "<s>"}, {"image_token", "<i>"}, {"audio", "<a>"}});
}
