#include "data/mixture.h"

#include <numeric>

#include "base/error.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;
using data::MixBy;
using data::StoppingStrategy;

namespace {

std::vector<data::MixturePart> parts(const std::vector<std::vector<std::size_t>>& lengths,
                                     const std::vector<double>& weights) {
  std::vector<data::MixturePart> out;
  for (std::size_t p = 0; p < lengths.size(); ++p)
    out.push_back({test::counting_dataset(lengths[p]), weights[p]});
  return out;
}

// Of each part how many examples, or tokens, are taken.
std::vector<std::int64_t> taken(const std::vector<data::MixturePart>& parts,
                                const std::vector<std::vector<std::int64_t>>& counts, MixBy by) {
  std::vector<std::int64_t> sums;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    sums.push_back(0);
    for (std::size_t i = 0; i < counts[p].size(); ++i)
      sums.back() += counts[p][i] * (by == MixBy::kTokens ? parts[p].dataset.length(i) : 1);
  }
  return sums;
}

}  // namespace

TEST_CASE("shares in examples are as the weights, without repeats up to the first source that ends") {
  const auto mixed = parts({std::vector<std::size_t>(30, 2), std::vector<std::size_t>(100, 2)}, {1, 2});
  const auto counts = data::mixture_counts(mixed, MixBy::kExamples, StoppingStrategy::kFirstExhausted, 42);
  CHECK(taken(mixed, counts, MixBy::kExamples) == std::vector<std::int64_t>{30, 60});
  for (const std::int64_t count : counts[1]) CHECK(count <= 1);
  CHECK(data::mixture_counts(mixed, MixBy::kExamples, StoppingStrategy::kFirstExhausted, 42) == counts);
  CHECK(data::mixture_counts(mixed, MixBy::kExamples, StoppingStrategy::kFirstExhausted, 43) != counts);
}

TEST_CASE("until all sources end, the smaller ones repeat evenly") {
  const auto mixed = parts({std::vector<std::size_t>(30, 2), std::vector<std::size_t>(100, 2)}, {1, 1});
  const auto counts = data::mixture_counts(mixed, MixBy::kExamples, StoppingStrategy::kAllExhausted, 42);
  CHECK(taken(mixed, counts, MixBy::kExamples) == std::vector<std::int64_t>{100, 100});
  for (const std::int64_t count : counts[0]) CHECK((count == 3 || count == 4));
  CHECK(counts[1] == std::vector<std::int64_t>(100, 1));
}

TEST_CASE("shares in tokens are met as nearly as whole examples allow") {
  const auto mixed = parts({std::vector<std::size_t>(50, 10), std::vector<std::size_t>(400, 3)}, {3, 1});
  const auto counts = data::mixture_counts(mixed, MixBy::kTokens, StoppingStrategy::kFirstExhausted, 42);
  const std::vector<std::int64_t> tokens = taken(mixed, counts, MixBy::kTokens);
  CHECK(tokens[0] == 500);
  CHECK(std::abs(tokens[1] - 500 / 3) <= 2);
}

TEST_CASE("a source with a tiny weight gives one example at least") {
  const auto mixed = parts({{5, 5, 5}, {5, 5}}, {1e6, 1});
  const auto counts = data::mixture_counts(mixed, MixBy::kExamples, StoppingStrategy::kFirstExhausted, 42);
  CHECK(taken(mixed, counts, MixBy::kExamples) == std::vector<std::int64_t>{3, 1});
}

TEST_CASE("joined parts keep their examples, with rows counted through") {
  const auto mixed = parts({{2, 3}, {4}}, {1, 1});
  data::TokenRows rows;
  const auto append = [&](const data::TokenRows& some) { rows.append(some); };
  CHECK(data::join_parts(mixed, {{1, 0}, {2}}, append) == std::vector<std::uint32_t>{0, 1, 1});
  const data::TokenDataset joined(std::move(rows));
  REQUIRE(joined.size() == 2);
  CHECK(joined.length(0) == 2);
  CHECK(joined.length(1) == 4);
  CHECK(joined.source_row(0) == 0);
  CHECK(joined.source_row(1) == 2);
  CHECK(joined.source_places(std::vector<std::size_t>{1}) == "row 3");
  rows = {};
  CHECK(data::join_parts(mixed, {{1, 1}, {1}}, append).empty());
  CHECK(rows.size() == 3);
}

TEST_CASE("several sources are read each in its own way and reported one by one") {
  test::DataFixture data;
  const auto text = data.write("{\"text\": \"abc\"}\n{\"text\": \"def\"}\n", "a.jsonl");
  const auto table = data.write("q,a\nx,y\n", "b.csv");
  data.options.chat_template = "plain";
  data.options.sources = {{text, {}}, {table, {.columns = {{"prompt", "q"}, {"completion", "a"}}}}};
  const data::LoadedData loaded = data::load_data(data.options, *test::fake_tokenizer());
  CHECK(loaded.train.size() == 3);
  CHECK(test::spell_labels(loaded.train, 2).starts_with('y'));
  CHECK_THAT(loaded.train_report.describe(), Contains("a.jsonl: 2 rows, format text") &&
                                                 Contains("b.csv: 1 row, format instruct") &&
                                                 Contains("together 3 examples"));
  data.options.weighted = true;
  const data::LoadedData mixed = data::load_data(data.options, *test::fake_tokenizer());
  CHECK(mixed.train.size() == 2);
  CHECK(mixed.train.fingerprint() != loaded.train.fingerprint());
}
