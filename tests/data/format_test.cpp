#include "data/format.h"

#include "base/error.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;
using data::Format;

namespace {

Format detect(const std::string& row, const data::Columns& columns = {}) {
  return data::detect_format(Json::parse(row, "row"), columns, "[data] line 1 of f");
}

}  // namespace

TEST_CASE("the format is found by the keys of the first row") {
  CHECK(detect(R"({"instruction": "a", "output": "b"})") == Format::kAlpaca);
  CHECK(detect(R"({"instruction": "a", "input": "", "output": "b", "text": "a b"})") == Format::kAlpaca);
  CHECK(detect(R"({"prompt": "a", "completion": "b"})") == Format::kInstruct);
  CHECK(detect(R"({"messages": []})") == Format::kChat);
  CHECK(detect(R"({"conversations": []})") == Format::kShareGpt);
  CHECK(detect(R"({"text": "a"})") == Format::kText);
  CHECK(detect(R"({"input_ids": [1]})") == Format::kTokens);
  CHECK(detect(R"({"question": "a", "answer": "b"})", {{"prompt", "question"}, {"completion", "answer"}}) ==
        Format::kInstruct);
}

TEST_CASE("no format or more than one is an error that lists keys found and formats known") {
  CHECK_THROWS_WITH(detect(R"({"question": "a", "answer": "b"})"),
                    Contains("'question', 'answer'") && Contains("no known format") && Contains("sharegpt"));
  CHECK_THROWS_WITH(detect(R"({"messages": [], "text": "a"})"),
                    Contains("more than one format (chat, text)"));
  CHECK_THROWS_WITH(detect(R"({"conversations": [], "chosen": {}, "rejected": {}})"), Contains("preference"));
  CHECK_THROWS_WITH(detect("{}"), Contains("no keys"));
}

TEST_CASE("a column that the row lacks is named, unless it is one of its turns") {
  const std::string row = R"({"question": "a", "answer": "b"})";
  CHECK_THROWS_WITH(detect(row, {{"prompt", "question"}, {"completion", "anwser"}}),
                    Contains("data.train.columns.completion names 'anwser', which isn't there") &&
                        Contains("did you mean 'answer'"));
  CHECK_THROWS_WITH(detect(row, {{"role", "speaker"}}), !Contains("isn't there"));
  CHECK_THROWS_WITH(detect(row), !Contains("isn't there"));
}

TEST_CASE("a file whose rows lie inside one object gets a hint, rows of an unknown format don't") {
  CHECK_THROWS_WITH(detect(R"({"version": 1, "data": [{"instruction": "a", "output": "b"}]})"),
                    Contains("'version', 'data'") && Contains(R"(jq '.["data"]')"));
  for (const char* row : {R"({"conversation": [{"speaker": "a", "text": "hi"}]})",
                          R"({"turns": [{"role": "user", "content": "a"}]})", R"({"data": []})",
                          R"({"data": ["instruction", "output"]})"})
    CHECK_THROWS_WITH(detect(row), !Contains("jq"));
}

TEST_CASE("columns name fields of the turns too, which don't tell the format") {
  CHECK(detect(R"({"dialogue": [{"speaker": "human", "text": "a"}]})",
               {{"messages", "dialogue"}, {"role", "speaker"}, {"content", "text"}}) == Format::kChat);
  CHECK(detect(R"({"conversations": [{"who": "gpt", "says": "a"}]})", {{"from", "who"}, {"value", "says"}}) ==
        Format::kShareGpt);
  CHECK_THROWS_WITH(data::check_columns(Format::kChat, {{"rolle", "speaker"}}),
                    Contains("did you mean 'role'"));
  CHECK_THROWS_WITH(detect("{}"), Contains("chat {messages: [{role, content}, ...], tools?, system?}"));
}

TEST_CASE("columns name a format's fields, and nothing else") {
  CHECK_NOTHROW(data::check_columns(Format::kInstruct, {{"prompt", "question"}}));
  CHECK_THROWS_WITH(data::check_columns(Format::kInstruct, {{"promt", "question"}}),
                    Contains("did you mean 'prompt'"));
}

TEST_CASE("published data sets are read, each in its format") {
  const auto folder = test::shared_data("");
  if (!folder) {
    WARN("no ../shared/data: skipped");
    return;
  }
  struct Case {
    const char* file;
    const char* format;
    std::int64_t rows;
    const char* chat_template;
  };
  for (const Case& c : {Case{"datasets/alpaca/alpaca_data_1k.json", "alpaca (found)", 1000, "auto"},
                        Case{"datasets/alpaca/alpaca_en_demo.json", "alpaca (found)", 999, "auto"},
                        Case{"datasets/chat/toy_chat_fine_tuning.jsonl", "chat (found)", 5, "llama3"},
                        Case{"datasets/chat/v1_sft_demo.jsonl", "chat (found)", 500, "chatml"},
                        Case{"datasets/completions/train.jsonl", "instruct (found)", -1, "auto"},
                        Case{"datasets/wikisql/train.jsonl", "text (found)", 1000, "auto"},
                        Case{"torchtune/alpaca_tiny.json", "alpaca (found)", 100, "auto"},
                        Case{"torchtune/chat_tiny.json", "sharegpt (found)", 1, "llama2"}}) {
    CAPTURE(c.file);
    data::DataOptions options;
    options.use_cache = false;
    options.chat_template = c.chat_template;
    options.max_seq_len = 100000;
    const data::LoadedFile loaded = data::load_file(*folder / c.file, options, *test::fake_tokenizer());
    CHECK(loaded.report.format == c.format);
    if (c.rows >= 0) CHECK(loaded.report.counts.rows == c.rows);
    CHECK(loaded.report.examples + loaded.report.counts.without_labels == loaded.report.counts.rows);
  }
  data::DataOptions options;
  options.use_cache = false;
  const auto load = [&](const char* file) {
    data::load_file(*folder / file, options, *test::fake_tokenizer());
  };
  CHECK_THROWS_WITH(load("datasets/chat/dpo_en_demo.json"), Contains("preference"));
  CHECK_THROWS_WITH(load("torchtune/instruct_tiny.json"), Contains("'instruction', 'response'"));
  CHECK_THROWS_WITH(load("datasets/alpaca/seed_tasks.jsonl"), Contains("'instances'"));
  options.chat_template = "llama3";
  CHECK_THROWS_WITH(load("datasets/chat/glaive_toolcall_en_demo.json"), Contains("'function_call'"));
}
