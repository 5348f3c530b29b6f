// What the settings of a source do to its rows: split, limit, prompt, preset, where, duplicates.
#include "base/error.h"
#include "data/presets.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

const std::string kTable =
    "english,german,n\n"
    "dog,Hund,1\n"
    "\"the {cat}\",Katze,2\n";

// The rows as the options reshape them, one JSON a line.
std::string reshaped(test::DataFixture& data, const std::string& bytes, const std::string& name) {
  const auto rows = data::open_source(data.write(bytes, name), data.options);
  std::string lines;
  for (std::size_t i = 0; i < rows->size(); ++i) lines += rows->parse(i).dump() + "\n";
  return lines;
}

}  // namespace

TEST_CASE("a prompt with columns' names makes rows of instruct out of any table") {
  test::DataFixture data;
  data.options.prompt = "Translate {{{n}}}: {english}";
  data.options.completion = "{german}!";
  CHECK(reshaped(data, kTable, "rows.csv") ==
        "{\"prompt\":\"Translate {1}: dog\",\"completion\":\"Hund!\"}\n"
        "{\"prompt\":\"Translate {2}: the {cat}\",\"completion\":\"Katze!\"}\n");
  data.options.completion.reset();
  data.options.columns = {{"completion", "german"}};
  const data::LoadedFile loaded = data.load(kTable, "rows.csv");
  CHECK(loaded.report.format == "instruct (configured)");
  CHECK(test::spell_labels(loaded.dataset, 1).starts_with("Katze"));
}

TEST_CASE("a prompt reads members of structs, and names what it can't fill in") {
  test::DataFixture data;
  data.options.prompt = "{a.b} {x.y}";
  data.options.completion = "{c}";
  CHECK(reshaped(data, R"({"a": {"b": true}, "x.y": 1.5, "c": "z"})", "rows.jsonl") ==
        "{\"prompt\":\"true 1.5\",\"completion\":\"z\"}\n");
  CHECK_THROWS_WITH(reshaped(data, R"({"a": {"b": "q"}, "c": "z"})", "rows.jsonl"),
                    Contains("line 1 of rows.jsonl") && Contains("'x.y'") && Contains("data.train.prompt") &&
                        Contains("found 'a', 'c'"));
  CHECK_THROWS_WITH(reshaped(data, R"({"a": {"b": null}, "x.y": 1, "c": "z"})", "rows.jsonl"),
                    Contains("'a.b'") && Contains("got null"));
  for (const char* wrong : {"{a", "a}", "{}", "no column", "{a{b}}"}) {
    data.options.prompt = wrong;
    CHECK_THROWS_WITH(reshaped(data, kTable, "rows.csv"), Contains("[data.train.prompt]"));
  }
}

TEST_CASE("a prompt with a format that it doesn't make is an error") {
  test::DataFixture data;
  data.options.prompt = "{english}";
  data.options.format = "chat";
  CHECK_THROWS_WITH(data.load(kTable, "rows.csv"), Contains("[data.train.prompt]") && Contains("chat"));
}

TEST_CASE("presets read the public sets' rows as they are published") {
  const auto read = [](const std::string& preset, const std::string& row) {
    test::DataFixture data;
    data.options.preset = preset;
    data.options.chat_template = "plain";
    const data::LoadedFile loaded = data.load(row);
    CHECK(loaded.report.format.ends_with("(of the preset " + preset + ")"));
    return test::spell(loaded.dataset.ids(0)) + " -> " + test::spell_labels(loaded.dataset, 0);
  };
  for (const char* alpaca : {"alpaca", "alpaca_cleaned"})
    CHECK_THAT(read(alpaca, R"({"instruction": "Do", "input": "", "output": "Done", "text": "x"})"),
               Contains("Do") && Contains("-> Done"));
  CHECK_THAT(
      read("dolly", R"({"instruction": "Who?", "context": "Ann.", "response": "Ann", "category": "qa"})"),
      Contains("Who?\n\nAnn.") && Contains("-> Ann"));
  CHECK_THAT(read("samsum", R"({"id": "1", "dialogue": "A: hi", "summary": "Greets"})"),
             Contains("Summarize this dialogue:\nA: hi\n---\nSummary:\n") && Contains("-> Greets"));
  CHECK_THAT(read("grammar", R"({"input": "He go", "output": "He goes"})"),
             Contains("Correct this to standard English: He go\n---\nCorrected: ") && Contains("-> He goes"));
  CHECK_THAT(read("longform", R"({"input": "Write", "output": "Text", "source": "c4"})"),
             Contains("-> Text"));
  CHECK_THAT(read("slimorca", R"({"conversations": [{"from": "human", "value": "Q", "weight": 0}, )"
                              R"({"from": "gpt", "value": "A", "weight": 1}]})"),
             Contains("Q") && Contains("-> A"));
  CHECK_THAT(read("lima", R"({"conversations": ["Q1", "A1", "Q2", "A2"], "source": "s"})"),
             Contains("Q1") && Contains("-> A1") && Contains("A2"));
}

TEST_CASE("message trees give the conversation along the best replies, as far as the last answer") {
  test::DataFixture data;
  data.options.preset = "oasst";
  const std::string rows =
      R"({"message_id": "r", "parent_id": null, "text": "Q", "role": "prompter", "rank": null}
{"message_id": "b", "parent_id": "r", "text": "worse", "role": "assistant", "rank": 1}
{"message_id": "c", "parent_id": "r", "text": "best", "role": "assistant", "rank": 0}
{"message_id": "x", "parent_id": "r", "text": "gone", "role": "assistant", "rank": -1, "deleted": true}
{"message_id": "d", "parent_id": "c", "text": "more?", "role": "prompter"}
{"message_id": "lone", "parent_id": null, "text": "?", "role": "prompter"}
)";
  CHECK(reshaped(data, rows, "rows.jsonl") ==
        R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"best"}]})"
        "\n");
  CHECK_THROWS_WITH(reshaped(data, rows + R"({"message_id": "r", "parent_id": "d"})", "rows.jsonl"),
                    Contains("line 7") && Contains("'r' stands in an earlier row"));
  CHECK_THROWS_WITH(reshaped(data, R"({"parent_id": null})", "rows.jsonl"),
                    Contains("line 1") && Contains("message_id"));
  CHECK_THROWS_WITH(reshaped(data, rows.substr(rows.find("{\"message_id\": \"lone")), "rows.jsonl"),
                    Contains("no message tree with an answer"));
}

TEST_CASE("an unknown preset is an error that lists the known ones") {
  CHECK_THROWS_WITH(data::resolve_preset({.preset = "alpaka"}), Contains("[data.train.preset]") &&
                                                                    Contains("longform") &&
                                                                    Contains("did you mean 'alpaca'"));
  CHECK(data::presets().size() == 9);
}

TEST_CASE("rows of other lengths and equal examples are left out and counted") {
  test::DataFixture data;
  const std::string rows =
      "{\"text\": \"abc\"}\n{\"text\": \"abcdefgh\"}\n{\"text\": \"abc\"}\n{\"text\": \"x\"}\n{\"text\": "
      "\"abc\"}\n";
  data.options.remove_duplicates = true;
  data::LoadedFile loaded = data.load(rows);
  CHECK(loaded.dataset.size() == 3);
  CHECK(loaded.report.counts.duplicates == 2);
  CHECK_THAT(loaded.report.describe(), Contains("2 examples left out: the same as an earlier one"));

  data.options.remove_duplicates = false;
  data.options.min_tokens = 4;
  data.options.max_tokens = 9;  // each has BOS and EOS
  loaded = data.load(rows);
  CHECK(loaded.dataset.size() == 3);
  CHECK(loaded.report.counts.other_length == 2);
  CHECK_THAT(loaded.report.describe(), Contains("2 rows left out: another length"));
  data.options.min_tokens = 100;
  data.options.max_tokens.reset();
  CHECK_THROWS_WITH(data.load(rows), Contains("[data.train.where]") && Contains("5 rows"));
}

TEST_CASE("a limit takes the first rows of a source, and none of its later faults") {
  test::DataFixture data;
  data.options.limit = 1;
  CHECK(data.load("{\"text\": \"a\"}\n{\"text\": 7}\n").report.counts.rows == 1);
}

TEST_CASE("preference pairs in a table are refused") {
  test::DataFixture data;
  CHECK_THROWS_WITH(data.load("prompt,chosen,rejected\na,b,c\n", "rows.csv"),
                    Contains("line 2 of rows.csv") && Contains("preference pairs"));
}
