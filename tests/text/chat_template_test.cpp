#include "text/chat_template.h"

#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/strings.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using text::Message;
using text::Segment;

namespace {

std::string text_of(const std::vector<Segment>& segments) {
  std::string out;
  for (const Segment& segment : segments) {
    if (segment.kind == Segment::Kind::kBos) {
      out += "<s>";
    } else if (segment.kind == Segment::Kind::kEos) {
      out += "</s>";
    } else {
      out += segment.text;
    }
  }
  return out;
}

std::string trained_text(const std::vector<Segment>& segments) {
  std::vector<Segment> trained;
  for (const Segment& segment : segments)
    if (segment.trained) trained.push_back(segment);
  return text_of(trained);
}

std::vector<Message> messages_of(const Json& list) {
  std::vector<Message> messages;
  for (const Json& turn : list.array())
    messages.push_back({turn.find("role")->string(), turn.find("content")->string()});
  return messages;
}

std::vector<Json> json_lines(const std::filesystem::path& path) {
  std::vector<Json> rows;
  for (const std::string& line : split(read_file(path), '\n'))
    if (!line.empty()) rows.push_back(Json::parse(line, path.filename().string()));
  return rows;
}

// Compares one golden row; true if there was something to compare.
bool matches_golden(const text::ChatTemplate& builtin, const std::vector<Message>& messages, const Json& row,
                    bool generation_prompt) {
  if (row.find("error") != nullptr) {
    if (!builtin.any_order) CHECK_THROWS_AS(builtin.render(messages, generation_prompt), Error);
    return !builtin.any_order;
  }
  CHECK(text_of(builtin.render(messages, generation_prompt)) == row.find("text")->string());
  return true;
}

std::string without_layout(std::string text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 4, "    ") == 0) {
      i += 3;
    } else if (text[i] != '\n') {
      out += text[i];
    }
  }
  return out;
}

const std::string kDate = "2024-07-26";

text::TemplateSources sources_of(const std::string& source) {
  return {.main = source, .tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}};
}

const std::vector<Message> kTwoTurns{
    {"system", "Be kind."}, {"user", "Hello"}, {"assistant", "Hi"}, {"user", "And?"}, {"assistant", "Bye"}};

}  // namespace

TEST_CASE("each built-in renders the same text as jinja2 does from the sources it stands for") {
  const text::ChatTemplate* builtin = nullptr;
  std::set<std::string> compared;
  for (const Json& row : json_lines(test::source_dir() / "tests/text/chat_golden.jsonl")) {
    if (const Json* name = row.find("builtin")) {
      builtin = &text::builtin_chat_template(name->string());
      INFO("source of " << row.find("template")->string());
      // Llama-3's first one opens the assistant's turn behind an answer, too.
      if (const Json* source = row.find("source"))
        CHECK((text::renders_like(*builtin, sources_of(source->string()), kDate) ||
               row.find("template")->string().starts_with("Llama-3")));
      continue;
    }
    CAPTURE(builtin->name, row.find("case")->string());
    if (matches_golden(*builtin, messages_of(*row.find("messages")), row,
                       row.find("generation_prompt")->boolean()))
      compared.insert(builtin->name);
  }
  CHECK(compared == std::set<std::string>{"alpaca", "chatml", "chatml-plain", "llama2", "llama2-stripped",
                                          "llama3", "llama3.1", "qwen2.5", "smollm2"});
}

TEST_CASE("built-ins render as the goldens of published files say") {
  const auto folder = test::shared_data("chat_templates");
  if (!folder) {
    WARN("no ../shared/data/chat_templates: skipped");
    return;
  }
  const Json cases = Json::parse(read_file(*folder / "cases.json"), "cases.json");
  // Those of the second kind are meant without their layout, but their goldens were rendered with it.
  const std::map<std::string, std::string> exact{{"ax_llama3.jinja", "llama3"},
                                                 {"ax_qwen_25.jinja", "qwen2.5"},
                                                 {"lc_Qwen-Qwen2.5-7B-Instruct.jinja", "qwen2.5"},
                                                 {"lc_meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3.1"}};
  const std::map<std::string, std::string> laid_out{{"cz_alpaca.jinja", "alpaca"},
                                                    {"cz_chatml.jinja", "chatml"},
                                                    {"cz_llama-2-chat.jinja", "llama2-stripped"},
                                                    {"cz_llama-3-instruct.jinja", "llama3"}};
  int compared = 0;
  for (const Json& row : json_lines(*folder / "golden.jsonl")) {
    const std::string file = row.find("template")->string();
    const bool generation_prompt = row.find("add_generation_prompt")->boolean();
    const std::vector<Message> messages = messages_of(*cases.find(row.find("case")->string()));
    CAPTURE(file, row.find("case")->string());
    if (exact.contains(file)) {
      compared +=
          matches_golden(text::builtin_chat_template(exact.at(file)), messages, row, generation_prompt);
    } else if (laid_out.contains(file) && row.find("text") != nullptr) {
      const auto& builtin = text::builtin_chat_template(laid_out.at(file));
      CHECK(without_layout(text_of(builtin.render(messages, generation_prompt))) ==
            without_layout(row.find("text")->string()));
      ++compared;
    }
  }
  CHECK(compared == 88);
}

TEST_CASE("only answers and the tokens that end them are trained on, in every turn") {
  const auto trained = [](const char* name) {
    return trained_text(text::builtin_chat_template(name).render(kTwoTurns));
  };
  CHECK(trained("llama2") == " Hi </s> Bye </s>");
  CHECK(trained("llama3") == "Hi<|eot_id|>Bye<|eot_id|>");
  CHECK(trained("llama3.1") == "Hi<|eot_id|>Bye<|eot_id|>");
  CHECK(trained("chatml") == "Hi<|im_end|>Bye<|im_end|>");
  CHECK(trained("alpaca") == "Hi</s>Bye</s>");
  CHECK(trained("plain") == "Hi</s>Bye</s>");
}

TEST_CASE("an assistant's turn with weight 0 is read but not trained on") {
  std::vector<Message> messages = kTwoTurns;
  messages[2].trained = false;
  for (const text::ChatTemplate& builtin : text::builtin_chat_templates()) {
    CAPTURE(builtin.name);
    CHECK(text_of(builtin.render(messages)) == text_of(builtin.render(kTwoTurns)));
    CHECK_THAT(trained_text(builtin.render(messages)), !Catch::Contains("Hi") && Catch::Contains("Bye"));
  }
}

TEST_CASE("alpaca rows have the two texts of Stanford's train.py") {
  const auto& alpaca = text::builtin_chat_template("alpaca");
  CHECK(
      text_of(alpaca.render(text::Instruction{"Add.", "1 2", "3"})) ==
      "<s>Below is an instruction that describes a task, paired with an input that provides further context. "
      "Write a response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 "
      "2"
      "\n\n### Response:\n3</s>");
  CHECK(text_of(alpaca.render(text::Instruction{"Sing.", "", "La"})) ==
        "<s>Below is an instruction that describes a task. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\nSing.\n\n### Response:\nLa</s>");
  CHECK(trained_text(alpaca.render(text::Instruction{"Sing.", "", "La"})) == "La</s>");
  const text::Instruction later{"Sing.", "", "La", {{"system", "S"}, {"user", "Hum."}, {"assistant", "Hm"}}};
  const std::string hum =
      "Below is an instruction that describes a task. Write a response that appropriately completes the "
      "request.\n\n### Instruction:\nHum.\n\n### Response:\n";
  CHECK_THAT(text_of(alpaca.render(later)), Catch::Contains("S\n\n" + hum + "Hm</s>\n\nBelow is"));
  CHECK(trained_text(alpaca.render(later)) == "Hm</s>La</s>");
  CHECK_THAT(text_of(alpaca.render(text::Instruction{"Sing.", "", "La"}, true)),
             Catch::EndsWith("### Response:\n"));
}

TEST_CASE("instructions become one user turn, with the input behind a blank line, in a chat template") {
  CHECK(text_of(text::builtin_chat_template("llama3").render(text::Instruction{"Add.", "1 2", "3"})) ==
        "<s><|start_header_id|>user<|end_header_id|>\n\nAdd.\n\n1 2<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n3<|eot_id|>");
}

TEST_CASE("a prompt at inference is how the training text of the same row begins") {
  const text::Instruction row{"Add.", "1 2", "3"};
  for (const text::ChatTemplate& builtin : text::builtin_chat_templates()) {
    CAPTURE(builtin.name);
    const std::string prompt = text_of(builtin.render(row, true));
    const std::string whole = text_of(builtin.render(row));
    CHECK_THAT(whole, Catch::StartsWith(prompt));
    CHECK(whole.find('3', prompt.size()) != std::string::npos);
  }
}

TEST_CASE("roles and orders that a template can't express are errors") {
  const auto& llama2 = text::builtin_chat_template("llama2");
  const auto& llama3 = text::builtin_chat_template("llama3");
  const auto render = [](const text::ChatTemplate& builtin, std::vector<Message> messages) {
    return builtin.render(messages);
  };
  CHECK_THROWS_WITH(render(llama3, {{"tool", "x"}}), Catch::Contains("'tool'") && Catch::Contains("turn 1"));
  CHECK_THROWS_WITH(render(llama2, {{"user", "a"}, {"user", "b"}}), Catch::Contains("turn 2"));
  CHECK_THROWS_WITH(render(llama2, {{"assistant", "a"}}), Catch::Contains("alternate"));
  CHECK_THROWS_AS(render(llama3, {}), Error);
}

TEST_CASE("auto takes the checkpoint's template, and is never a silent fallback") {
  const text::TemplateSources own = sources_of("{{ messages }}"), none;
  const text::ChosenTemplate chosen = text::choose_chat_template("auto", own, false, kDate);
  CHECK(chosen.jinja != nullptr);
  CHECK(chosen.chat_template == nullptr);
  CHECK(chosen.description == "the checkpoint's own, in Jinja");
  CHECK(text::jinja_of(chosen, text::RowKind::kInstruction) == "{{ messages }}");
  CHECK_THROWS_WITH(text::choose_chat_template("auto", sources_of("a\n{% for %}"), true, kDate),
                    Catch::Contains("line 2, column"));
  CHECK_THROWS_WITH(text::choose_chat_template("auto", none, false, kDate),
                    Catch::Contains("llama2") && Catch::Contains("llama3") && Catch::Contains("alpaca"));
  const text::ChosenTemplate base = text::choose_chat_template("auto", none, true, kDate);
  CHECK(base.chat_template->name == "alpaca");
  CHECK_THAT(base.description, Catch::Contains("default"));
  CHECK(text::choose_chat_template("llama3", own, false, kDate).chat_template->name == "llama3");
  CHECK_THROWS_WITH(text::choose_chat_template("lama3", own, false, kDate),
                    Catch::Contains("did you mean 'llama3'"));
}

TEST_CASE("a file's template is taken, and that of a folder with a tokenizer's files") {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / "odd.jinja", "{{ messages }}");
  CHECK(text::choose_chat_template((folder / "odd.jinja").string(), {}, false, kDate).source ==
        "{{ messages }}");
  CHECK_THROWS_WITH(text::choose_chat_template(folder.path().string(), {}, false, kDate),
                    Catch::Contains("found none"));
  write_file_atomic(
      folder / "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  const auto chosen = text::choose_chat_template(folder.path().string(), {}, false, kDate);
  CHECK(chosen.source == "d");
  CHECK_THAT(chosen.description, Catch::Contains("another one for rows with tools"));
}
