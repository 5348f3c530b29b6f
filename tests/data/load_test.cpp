#include "data/load.h"

#include <set>

#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

std::string text_rows(int count, std::size_t length) {
  std::string rows;
  for (int i = 0; i < count; ++i)
    rows += "{\"text\": \"" + std::string(length, static_cast<char>('a' + i % 26)) + "\"}\n";
  return rows;
}

std::set<std::int64_t> rows_of(const data::TokenDataset& dataset) {
  std::set<std::int64_t> rows;
  for (std::size_t i = 0; i < dataset.size(); ++i) rows.insert(dataset.source_row(i));
  return rows;
}

}  // namespace

TEST_CASE("a validation fraction takes whole rows off the training file, by seed") {
  test::DataFixture data;
  data.write(text_rows(50, 30));
  data.options.max_seq_len = 8;  // four chunks a row
  data.options.validation_fraction = 0.2;
  const auto tokenizer = test::fake_tokenizer();
  const data::LoadedData loaded = data::load_data(data.options, *tokenizer);
  REQUIRE(loaded.validation.has_value());
  CHECK(loaded.train.size() == 160);
  CHECK(loaded.validation->size() == 40);
  const auto train_rows = rows_of(loaded.train);
  for (const std::int64_t row : rows_of(*loaded.validation)) CHECK_FALSE(train_rows.contains(row));
  CHECK(loaded.train.total_tokens() + loaded.validation->total_tokens() == loaded.train_report.tokens);
  CHECK(loaded.train.fingerprint() != loaded.validation->fingerprint());

  CHECK(data::load_data(data.options, *tokenizer).train.fingerprint() == loaded.train.fingerprint());
  data.options.seed = 43;
  CHECK(data::load_data(data.options, *tokenizer).train.fingerprint() != loaded.train.fingerprint());
}

TEST_CASE("a validation fraction near 1 leaves a row to train on, and a single row can't be split") {
  test::DataFixture data;
  data.write(text_rows(5, 3));
  data.options.validation_fraction = 0.9999;
  const data::LoadedData loaded = data::load_data(data.options, *test::fake_tokenizer());
  CHECK(loaded.train.size() == 1);
  CHECK(loaded.validation->size() == 4);
  data.write(text_rows(1, 3));
  CHECK_THROWS_WITH(data::load_data(data.options, *test::fake_tokenizer()),
                    Catch::Contains("[data.validation.fraction] expected at least 2 rows"));
}

TEST_CASE("a data set in the Hub's cache goes by its own name, not by its snapshot's") {
  test::DataFixture data;
  const std::filesystem::path snapshot =
      data.folder / "datasets--owner--name" / "snapshots" / "0123456789abcdef";
  std::filesystem::create_directories(snapshot);
  write_file_atomic(snapshot / "train.jsonl", text_rows(3, 3));
  const auto name = [&](const std::filesystem::path& path) {
    return data::load_file(path, data.options, *test::fake_tokenizer()).report.file;
  };
  CHECK(name(snapshot) == "owner/name");
  CHECK(name(snapshot / "") == "owner/name");
  CHECK(name(snapshot / "train.jsonl") == "train.jsonl");
}

TEST_CASE("a validation file is read like the training file") {
  test::DataFixture data;
  const auto validation = data.write(text_rows(2, 5), "valid.jsonl");
  data.write(text_rows(3, 5));
  data.options.validation_path = validation;
  const data::LoadedData loaded = data::load_data(data.options, *test::fake_tokenizer());
  CHECK(loaded.train.size() == 3);
  CHECK(loaded.validation->size() == 2);
  CHECK(loaded.validation_report->file == "valid.jsonl");
}

TEST_CASE("rows of more than one format are an error with the first line that differs") {
  test::DataFixture data;
  CHECK_THROWS_WITH(data.load("{\"text\": \"a\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}\n"),
                    Catch::Contains("line 2") && Catch::Contains("instruct") && Catch::Contains("text"));
}

TEST_CASE("the report says what was read and how") {
  test::DataFixture data;
  const data::LoadedFile loaded = data.load(R"({"instruction": "a", "output": "b"})");
  CHECK_THAT(loaded.report.describe(),
             Catch::StartsWith("train.jsonl: 1 row, format alpaca (found), template alpaca (the default") &&
                 Catch::Contains("1 example,") && Catch::Contains("(2 trained on)"));
}

TEST_CASE("a subset keeps what belongs to each example") {
  const auto whole = test::counting_dataset({3, 4, 5, 6});
  const auto part = whole.subset({3, 1}).subset({1, 0});
  REQUIRE(part.size() == 2);
  CHECK(part.length(0) == 4);
  CHECK(part.source_row(1) == 3);
  CHECK(part.total_tokens() == 10);
  CHECK(part.total_labels() == 8);
  CHECK(part.longest() == 6);
  CHECK(part.ids(0).data() == whole.ids(1).data());
}

TEST_CASE("some rows are tried: the first ones, the last one and others between") {
  test::DataFixture data;
  const std::string good = R"({"prompt": "a", "completion": "b"})",
                    bad = R"({"prompt": "a", "completion": 1})";
  const auto tried = [&](std::size_t rows, std::size_t fault) {
    std::string text;
    for (std::size_t i = 0; i < rows; ++i) text += (i == fault ? bad : good) + "\n";
    const auto path = data.write(text);
    data::try_rows(*data::open_source(path, data.options), data.options, *test::fake_tokenizer());
  };
  CHECK_NOTHROW(tried(1000, 1000));
  for (const std::size_t fault : std::vector<std::size_t>{0, 1, 31, 999})
    CHECK_THROWS_WITH(tried(1000, fault), Catch::Contains("line " + std::to_string(fault + 1) + " of "));
  for (std::size_t rows = 1; rows <= 64; ++rows)
    CHECK_THROWS_WITH(tried(rows, rows / 2), Catch::Contains("to be a string"));
  CHECK_NOTHROW(tried(1000, 33));  // not all are
  data.options.overlong = data::Overlong::kError;
  data.options.max_seq_len = 4;
  CHECK_THROWS_WITH(tried(3, 3), Catch::Contains("data.max_seq_len"));
}
