// Every kind of bad data file gives an error that names file and line and says what to do.
#include "base/error.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

const std::string kGood = R"({"instruction": "a", "input": "", "output": "b"})"
                          "\n";

}  // namespace

TEST_CASE("an absent, empty or blank data file is an error") {
  test::DataFixture data;
  CHECK_THROWS_WITH(data::load_file(data.folder / "absent.jsonl", data.options, *test::fake_tokenizer()),
                    Contains("absent.jsonl") && Contains("No such file"));
  CHECK_THROWS_WITH(data.load(""), Contains("train.jsonl") && Contains("is empty"));
  CHECK_THROWS_WITH(data.load("\n \n"), Contains("is empty"));
}

TEST_CASE("bytes that are not UTF-8 are an error with their line") {
  test::DataFixture data;
  CHECK_THROWS_WITH(data.load(kGood + "{\"instruction\": \"caf\xE9\", \"output\": \"b\"}\n"),
                    Contains("line 2 of train.jsonl") && Contains("not UTF-8") &&
                        Contains("iconv -f WINDOWS-1252 -t UTF-8"));
  CHECK_THROWS_WITH(data.load(std::string("\xFF\xFE{\0", 4)), Contains("iconv -f UTF-16 -t UTF-8"));
}

TEST_CASE("a broken line is an error with its line and column") {
  test::DataFixture data;
  CHECK_THROWS_WITH(data.load(kGood + kGood + "{\"instruction\": \"a\", \n"),
                    Contains("line 3 of train.jsonl: not valid JSON at column"));
  CHECK_THROWS_WITH(data.load(kGood + R"({"instruction": "a", "instruction": "b", "output": "c"})"),
                    Contains("line 2") && Contains("duplicate key 'instruction'"));
  CHECK_THROWS_WITH(data.load(kGood + std::string(100000, '[')),
                    Contains("line 2") && Contains("nested deeper"));
  CHECK_THROWS_WITH(data.load("[" + kGood + ",\n{\"instruction\":\n tru}]"),
                    Contains("row 2 (line 3) of train.jsonl: not valid JSON at line 2 of the row"));
  CHECK_THROWS_WITH(data.load(kGood + "17\n"),
                    Contains("line 2") && Contains("expected a JSON object, got integer"));
}

TEST_CASE("a row that lacks keys is an error that lists those it has") {
  test::DataFixture data;
  data.options.format = "alpaca";
  CHECK_THROWS_WITH(data.load(kGood + R"({"instruction": "a", "response": "b"})"),
                    Contains("line 2 of train.jsonl") && Contains("expected key 'output'") &&
                        Contains("'instruction', 'response'") && Contains("data.train.columns"));
  CHECK_THROWS_WITH(data.load(kGood + R"({"instruction": 7, "output": "b"})"),
                    Contains("line 2") && Contains("'instruction' to be a string, got integer"));
}

TEST_CASE("a file without any token to learn is an error, a row without is counted") {
  test::DataFixture data;
  const std::string silent = R"({"messages": [{"role": "user", "content": "hi"}]})"
                             "\n";
  const std::string spoken =
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]})"
      "\n";
  data.options.chat_template = "llama3";
  CHECK_THROWS_WITH(data.load(silent + silent), Contains("no row of train.jsonl can be trained on") &&
                                                    Contains("of 2 rows 2 have no token to learn"));
  const data::LoadedFile loaded = data.load(silent + spoken);
  CHECK(loaded.report.counts.without_labels == 1);
  CHECK(loaded.dataset.size() == 1);
}

TEST_CASE("a file of over-long rows only is an error, whatever is done with them") {
  test::DataFixture data;
  data.options.max_seq_len = 20;  // shorter than the prompt
  CHECK_THROWS_WITH(data.load(kGood), Contains("no row") && Contains("max_seq_len 20"));
  data.options.overlong = data::Overlong::kDrop;
  CHECK_THROWS_WITH(data.load(kGood), Contains("no row") && Contains("1 are longer"));
  data.options.overlong = data::Overlong::kError;
  CHECK_THROWS_WITH(data.load(kGood), Contains("line 1 of train.jsonl") && Contains("at most 20 tokens") &&
                                          Contains("data.overlong"));
}

TEST_CASE("gzip that is cut or blows up is an error that names the file") {
  test::DataFixture data;
  const std::string packed = test::gzip(kGood);
  CHECK_THROWS_WITH(data.load(packed.substr(0, packed.size() - 9), "train.jsonl.gz"),
                    Contains("train.jsonl.gz") && Contains("cut short"));
  CHECK_THROWS_WITH(data.load(test::gzip(std::string(32 << 20, ' ')), "train.jsonl.gz"),
                    Contains("train.jsonl.gz") && Contains("expands more than 200 times"));
}

TEST_CASE("the error reported is the first row's, whatever the number of threads") {
  test::DataFixture data;
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += kGood;
  for (int i = 0; i < 1000; ++i) lines += "{\"instruction\": \"a\"}\n";
  for (const unsigned threads : {1U, 2U, 7U}) {
    data.options.threads = threads;
    CHECK_THROWS_WITH(data.load(lines), Contains("line 1001 of train.jsonl"));
  }
}

TEST_CASE("settings out of range are errors that name the key") {
  test::DataFixture data;
  data.write(kGood + kGood);
  const auto fails = [&](const data::DataOptions& options) {
    data::load_data(options, *test::fake_tokenizer());
  };
  data::DataOptions options = data.options;
  options.max_seq_len = 1;
  CHECK_THROWS_WITH(fails(options), Contains("data.max_seq_len"));
  options = data.options;
  options.validation_fraction = 1.0;
  CHECK_THROWS_WITH(fails(options), Contains("data.validation.fraction"));
  options.validation_fraction = 0.5;
  options.validation_path = data.options.train_path;
  CHECK_THROWS_WITH(fails(options), Contains("got both"));
  options = data.options;
  options.format = "alpacca";
  CHECK_THROWS_WITH(fails(options), Contains("did you mean 'alpaca'"));
}

TEST_CASE("a template whose control tokens the tokenizer lacks is an error before any row is read") {
  test::DataFixture data;
  data.options.chat_template = "llama3";
  data.tokenizer_options.chat_tokens = false;
  CHECK_THROWS_WITH(data.load(kGood), Contains("<|start_header_id|>") && !Contains("line 1"));
}

TEST_CASE("names and contents from files reach errors with control characters escaped") {
  test::DataFixture data;
  CHECK_THROWS_WITH(data.load("{\"\\u001b[31mred\": 1}"), Contains("\\x1b[31mred") && !Contains("\x1b"));
  CHECK_THROWS_WITH(data.load("", "a\x1b[31m.jsonl"), Contains("a\\x1b[31m.jsonl") && !Contains("\x1b"));
}
