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
             Catch::StartsWith("train.jsonl: 1 rows, format alpaca (found), template alpaca (the default") &&
                 Catch::Contains("1 examples") && Catch::Contains("(2 trained on)"));
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
