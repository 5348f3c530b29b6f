#include "data/tokenize.h"

#include "base/error.h"
#include "data/preview.h"
#include "data_fixture.h"
#include "support/captured_stderr.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

const std::string kChat =
    R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"},
 {"role": "assistant", "content": "A"}, {"role": "user", "content": "R"}, {"role": "assistant", "content": "B"}]})";

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text + "\n";
}

}  // namespace

TEST_CASE("labels are the answers and their end tokens, unshifted, in every turn") {
  test::DataFixture data;
  data.options.chat_template = "chatml";
  const data::TokenDataset dataset = data.load(one_line(kChat)).dataset;
  REQUIRE(dataset.size() == 1);
  CHECK(test::spell(dataset.ids(0)) ==
        "<s><|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|"
        ">\n"
        "<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n");
  CHECK(test::spell_labels(dataset, 0) == "A<|im_end|>B<|im_end|>");
  CHECK(dataset.label_count(0) == 4);
  for (std::size_t t = 0; t < dataset.ids(0).size(); ++t) {
    const std::int32_t label = dataset.labels(0)[t];
    CHECK((label == data::kNoLabel || label == dataset.ids(0)[t]));
  }
}

TEST_CASE("train_on all labels every token and changes none") {
  test::DataFixture data;
  const std::string row = R"({"instruction": "a", "output": "b"})"
                          "\n";
  const data::TokenDataset answers = data.load(row).dataset;
  data.options.train_on = text::TrainOn::kAll;
  const data::TokenDataset all = data.load(row).dataset;
  CHECK(test::spell(all.ids(0)) == test::spell(answers.ids(0)));
  CHECK(test::spell_labels(all, 0) == test::spell(all.ids(0)));
  CHECK(all.label_count(0) == all.length(0) - 1);
  CHECK(test::spell_labels(answers, 0) == "b</s>");
}

TEST_CASE("empty answers are trained on, and counted") {
  test::DataFixture data;
  const std::string empty =
      R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": " "}]})";
  const std::string not_trained =
      R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "", "weight": 0},
 {"role": "user", "content": "R"}, {"role": "assistant", "content": "A"}]})";
  data.options.chat_template = "chatml";
  const data::LoadedFile chats = data.load(one_line(empty) + one_line(not_trained));
  CHECK(chats.dataset.size() == 2);
  CHECK(chats.report.counts.empty_answers == 1);
  CHECK_THAT(chats.report.describe(), Contains("1 row with an empty answer"));
  const std::string instructions = R"({"instruction": "a", "output": ""})"
                                   "\n"
                                   R"({"instruction": "a", "output": "b"})"
                                   "\n";
  CHECK(data.load(instructions).report.counts.empty_answers == 1);
}

TEST_CASE("a key that columns name for a field that rows may lack, and that none has, is warned of") {
  test::DataFixture data;
  const std::string row = R"({"q": "a", "completion": "b", "system_prompt": "s"})"
                          "\n";
  data.options.columns = {{"prompt", "q"}, {"system", "sysprompt"}};
  const auto said = [&] {
    const test::CapturedStderr log;
    data.load(row);
    return log.text();
  };
  CHECK_THAT(said(), Contains("system: no row of train.jsonl has a key 'sysprompt' (1 row looked at)"));
  data.options.columns["system"] = "system_prompt";
  CHECK(said().empty());
}

TEST_CASE("rows with images beside their text are warned of, empty columns of images aren't") {
  test::DataFixture data;
  const auto said = [&](const std::string& images) {
    const test::CapturedStderr log;
    data.load(R"({"text": "a", "images": )" + images + "}\n");
    return log.text();
  };
  CHECK_THAT(said(R"(["a.png"])"), Contains("train.jsonl has rows with 'images', of which nothing is read"));
  CHECK_THAT(said(R"({"bytes": "x"})"), Contains("'images'"));
  CHECK_THAT(said(R"("a.png")"), Contains("'images'"));
  for (const char* none : {"null", "[]", R"("")"}) CHECK(said(none).empty());
}

TEST_CASE("validation rows that are the training rows are warned of") {
  test::DataFixture data;
  data.options.validation_path = data.write("{\"text\": \"a\"}\n");
  const test::CapturedStderr log;
  data::load_data(data.options, *test::fake_tokenizer());
  CHECK_THAT(log.text(), Contains("the validation rows are the training rows"));
}

TEST_CASE("turns that a template leaves out are counted") {
  test::DataFixture data;
  const std::string rows =
      R"({"messages": [{"role": "narrator", "content": "N"}, {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})"
      "\n"
      R"({"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": "A"}]})"
      "\n";
  data.tokenizer_options.chat_template =
      "{% for m in messages if m.role in ['user', 'assistant'] %}{{ m.role + ':' + m.content + '</s>' }}{% "
      "endfor %}";
  {
    const test::CapturedStderr log;
    CHECK(data.load(rows).report.counts.incomplete == 1);
    CHECK_THAT(log.text(), Contains("of 1 of 2 rows the chat template leaves something out"));
  }
  data.tokenizer_options.chat_template =
      "{% for m in messages %}{{ m.role + ':' + m.content + '</s>' }}{% endfor %}";
  CHECK(data.load(rows).report.counts.incomplete == 0);
}

TEST_CASE("tools, tool calls and reasoning that a template leaves out are counted") {
  test::DataFixture data;
  const auto incomplete = [&](const std::string& row, const std::string& chat_template) {
    data.tokenizer_options.chat_template = chat_template;
    const test::CapturedStderr log;
    const std::int64_t count = data.load(one_line(row)).report.counts.incomplete;
    CHECK(log.text().empty() == (count == 0));
    return count == 1;
  };
  const std::string turns = "{% for m in messages %}{{ m.role + ':' + (m.content or '') }}",
                    end = "{{ '</s>' }}{% endfor %}",
                    calls = "{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}",
                    thoughts = "{{ m.reasoning_content or '' }}", tools = "{{ tools | tojson }}";
  const std::string call =
      R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": CONTENT,
 "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}]}]})";
  for (const std::string content : {"null", "\"I look.\""}) {
    std::string row = call;
    row.replace(row.find("CONTENT"), 7, content);
    CHECK(incomplete(row, turns + end));
    CHECK_FALSE(incomplete(row, turns + calls + end));
    CHECK(incomplete(row, "{% for m in messages %}{{ m.role }}" + calls + end));
  }
  const std::string tool =
      R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}],
 "tools": [{"type": "function", "function": {"name": "weather", "parameters": {}}}]})";
  CHECK(incomplete(tool, turns + end));
  CHECK_FALSE(incomplete(tool, tools + turns + end));
  const std::string reasoning =
      R"({"messages": [{"role": "user", "content": "Q"},
 {"role": "assistant", "content": "A", "reasoning_content": "\nLet me see.\nYes."}]})";
  CHECK(incomplete(reasoning, turns + end));
  CHECK_FALSE(incomplete(reasoning, turns + thoughts + end));
}

TEST_CASE("an over-long row is cut or left out, and counted") {
  test::DataFixture data;
  const std::string rows = R"({"prompt": "abc", "completion": "defgh"})"
                           "\n"
                           R"({"prompt": "a", "completion": "b"})"
                           "\n"
                           R"({"prompt": "abcdefgh", "completion": "i"})"
                           "\n";
  data.options.chat_template = "plain";
  data.options.max_seq_len = 6;
  const data::LoadedFile cut = data.load(rows);
  CHECK(cut.report.counts.rows == 3);
  CHECK(cut.report.counts.truncated == 2);
  CHECK(cut.report.counts.without_labels == 1);  // the third has nothing left of its answer
  REQUIRE(cut.dataset.size() == 2);
  CHECK(test::spell(cut.dataset.ids(0)) == "<s>abcde");
  CHECK(test::spell_labels(cut.dataset, 0) == "de");
  CHECK(cut.dataset.source_line(1) == 2);
  data.options.overlong = data::Overlong::kDrop;
  const data::LoadedFile dropped = data.load(rows);
  CHECK(dropped.report.counts.dropped == 2);
  CHECK(dropped.dataset.size() == 1);
  CHECK_THAT(dropped.report.describe(), Contains("2 rows left out: longer"));
}

TEST_CASE("a text is split into consecutive chunks that hold all of it") {
  test::DataFixture data;
  data.options.max_seq_len = 4;
  data.options.overlong = data::Overlong::kError;  // texts are split whatever this says
  const data::LoadedFile loaded = data.load("{\"text\": \"abcdefghij\"}\n{\"text\": \"x\"}\n");
  REQUIRE(loaded.dataset.size() == 4);
  CHECK(test::spell(loaded.dataset.ids(0)) == "<s>abc");
  CHECK(test::spell(loaded.dataset.ids(1)) == "defg");
  CHECK(test::spell(loaded.dataset.ids(2)) == "hij</s>");
  CHECK(test::spell(loaded.dataset.ids(3)) == "<s>x</s>");
  CHECK(loaded.dataset.source_row(2) == 0);
  CHECK(loaded.dataset.source_row(3) == 1);
  CHECK(loaded.report.counts.split == 1);
  CHECK(loaded.dataset.label_count(1) == 3);
}

TEST_CASE("tokens are taken as they are, within the vocabulary") {
  test::DataFixture data;
  const data::TokenDataset dataset =
      data.load(R"({"input_ids": [5, 6, 7], "labels": [-100, -100, 7]})").dataset;
  CHECK(std::vector<std::int32_t>(dataset.ids(0).begin(), dataset.ids(0).end()) ==
        std::vector<std::int32_t>{5, 6, 7});
  CHECK(dataset.label_count(0) == 1);
  CHECK_THROWS_WITH(data.load(R"({"input_ids": [5, 100000]})"),
                    Contains("line 1") && Contains("element 1 is 100000"));
  CHECK_THROWS_WITH(data.load(R"({"input_ids": [5, -1]})"), Contains("element 1 is -1"));
  CHECK_THROWS_WITH(data.load(R"({"input_ids": [5, 6], "labels": [5, -7]})"), Contains("element 1 is -7"));
}

TEST_CASE("ids that the model has and the tokenizer hasn't are taken, and counted") {
  test::DataFixture data;
  const auto known = static_cast<std::int64_t>(test::fake_tokenizer()->vocab_size());
  data.options.embedding_rows = known + 2;
  const auto row = [&](std::int64_t id) { return "{\"input_ids\": [5, " + std::to_string(id) + "]}\n"; };
  const data::LoadedFile loaded = data.load(row(known) + row(6) + row(known + 1));
  CHECK(loaded.report.counts.unknown_ids == 2);
  CHECK(loaded.dataset.size() == 3);
  CHECK(data::token_texts(loaded.dataset.ids(0), *test::fake_tokenizer())[1] ==
        "<id " + std::to_string(known) + ">");
  CHECK_THROWS_WITH(data.load(row(known + 2)),
                    Contains("the model's embedding rows, " + std::to_string(known + 2)) &&
                        Contains("element 1 is " + std::to_string(known + 2)));
  data.options.embedding_rows = 0;
  CHECK_THROWS_WITH(data.load(row(known)),
                    Contains("the tokenizer's vocabulary size, " + std::to_string(known)));
}

TEST_CASE("the first token of a sequence is no target") {
  test::DataFixture data;
  const data::LoadedFile loaded =
      data.load("{\"input_ids\": [5, 6], \"labels\": [5, -100]}\n{\"input_ids\": [5, 6]}");
  CHECK(loaded.report.counts.without_labels == 1);
  CHECK(loaded.dataset.size() == 1);
}

TEST_CASE("the result doesn't depend on the number of threads") {
  test::DataFixture data;
  std::string rows;
  for (int i = 0; i < 500; ++i)
    rows +=
        R"({"prompt": "row )" + std::to_string(i) + R"(", "completion": ")" + std::to_string(i * i) + "\"}\n";
  std::vector<std::string> fingerprints;
  for (const unsigned threads : {1U, 2U, 5U}) {
    data.options.threads = threads;
    const data::TokenDataset dataset = data.load(rows).dataset;
    fingerprints.push_back(dataset.fingerprint());
    CHECK(dataset.source_line(499) == 500);
  }
  CHECK(fingerprints[0] == fingerprints[1]);
  CHECK(fingerprints[0] == fingerprints[2]);
}

TEST_CASE("the row that is refused depends neither on the rows before it nor on the number of threads") {
  test::DataFixture data;
  data.tokenizer_options.chat_template =
      "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set turns = "
      "messages[1:] %}"
      "{% else %}{% set turns = messages %}{% endif %}{% for m in turns %}{% if m.role == 'user' %}[INST]"
      "{% if loop.last and system is defined %}{{ system }}\n\n{% endif %}{{ m.content }}[/INST]"
      "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}";
  std::string plain;
  for (int i = 0; i < 200; ++i)
    plain += one_line(
        R"({"messages": [{"role": "user", "content": "R"}, {"role": "assistant", "content": "B"}]})");
  for (const unsigned threads : {1U, 2U, 8U}) {
    data.options.threads = threads;
    CHECK(data.load(plain).dataset.size() == 200);
    const std::string system =
        R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"},
 {"role": "assistant", "content": "A"}]})";
    CHECK_THROWS_WITH(data.load(plain + one_line(system)),
                      Contains("line 201") && Contains("system message"));
    CHECK_THROWS_WITH(data.load(one_line(system) + plain), Contains("line 1 ") && Contains("system message"));
  }
}

TEST_CASE("train_on last labels the last answer alone, by a built-in template and by one in Jinja") {
  test::DataFixture data;
  data.tokenizer_options.chat_template =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  for (const char* chat_template : {"chatml", "auto"}) {
    data.options.chat_template = chat_template;
    data.options.train_on = text::TrainOn::kRoles;
    CHECK(test::spell_labels(data.load(one_line(kChat)).dataset, 0) == "A<|im_end|>B<|im_end|>");
    data.options.train_on = text::TrainOn::kLast;
    CHECK(test::spell_labels(data.load(one_line(kChat)).dataset, 0) == "B<|im_end|>");
  }
}

TEST_CASE("tools and calls go where the template puts them, and calls are learnt") {
  test::DataFixture data;
  data.tokenizer_options.chat_template =
      "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}</call>"
      "{% endfor %}{{ m.content or '' }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const std::string row =
      R"({"tools": [{"name": "f"}], "messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": null,
 "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}, {"role": "tool", "content": "5"},
 {"role": "assistant", "content": "five"}]})";
  const data::TokenDataset dataset = data.load(one_line(row)).dataset;
  CHECK(test::spell(dataset.ids(0)) ==
        "[{\"name\": \"f\"}]<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<call>f{\"x\": 1}</call>"
        "<|im_end|>\n<|im_start|>tool\n5<|im_end|>\n<|im_start|>assistant\nfive<|im_end|>\n");
  CHECK(test::spell_labels(dataset, 0) == "<call>f{\"x\": 1}</call><|im_end|>five<|im_end|>");
  data.tokenizer_options.tool_template = "with tools: {{ messages[1].content }}";
  data.options.train_on = text::TrainOn::kAll;
  CHECK_THAT(test::spell(data.load(one_line(row)).dataset.ids(0)), Catch::StartsWith("with tools: "));
  data.options.chat_template = "chatml";
  CHECK_THROWS_WITH(data.load(one_line(row)),
                    Contains("line 1") && Contains("can't express the row's tools"));
}

TEST_CASE("a template that fails, or has no end, is an error with the row's line and the template's") {
  test::DataFixture data;
  const std::string rows =
      one_line(R"({"prompt": "a", "completion": "b"})") + one_line(R"({"prompt": "c", "completion": "d"})");
  const auto fails = [&](const std::string& source, const std::string& says) {
    data.tokenizer_options.chat_template = source;
    CHECK_THROWS_WITH(data.load(rows), Contains(says) && Contains("of the template"));
  };
  fails("\n{% if messages[0].content == 'c' %}{{ raise_exception('no c') }}{% endif %}",
        "line 2 of train.jsonl");
  fails("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "line 1 of train.jsonl");
  fails("x\n {% include 'y' %}", "line 2, column 2");
}
