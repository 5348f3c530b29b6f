#include "data/micro_batch.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

using Ints = std::vector<std::int64_t>;

data::TokenDataset small_dataset() {
  data::TokenRows rows;
  const std::vector<std::int32_t> first{10, 11, 12, 13};
  const std::vector<std::int32_t> first_labels{data::kNoLabel, data::kNoLabel, 12, 13};
  const std::vector<std::int32_t> second{20, 21};
  rows.add(first, first_labels, 0, 1);
  rows.add(second, second, 1, 2);
  return data::TokenDataset(std::move(rows));
}

}  // namespace

TEST_CASE("a micro-batch holds sequences end to end, labels shifted inside each") {
  const auto dataset = small_dataset();
  const std::vector<std::size_t> both{0, 1};
  const data::MicroBatch batch = data::make_micro_batch(dataset, both);
  CHECK(batch.tokens == Ints{10, 11, 12, 13, 20, 21});
  CHECK(batch.position_ids == Ints{0, 1, 2, 3, 0, 1});
  CHECK(batch.cu_seqlens == std::vector<std::int32_t>{0, 4, 6});
  CHECK(batch.labels == Ints{-100, 12, 13, -100, 21, -100});
  CHECK(batch.label_rows == Ints{1, 2, 4});
  CHECK(batch.label_count() == dataset.label_count(0) + dataset.label_count(1));
  CHECK(batch.sample_ids == Ints{0, 1});
  CHECK(batch.max_seqlen == 4);
  CHECK(batch.real_tokens == 6);
}

TEST_CASE("an empty micro-batch is well-formed") {
  const data::MicroBatch batch = data::make_micro_batch(small_dataset(), {});
  CHECK(batch.cu_seqlens == std::vector<std::int32_t>{0});
  CHECK(batch.real_tokens == 0);
  CHECK(batch.max_seqlen == 0);
}

TEST_CASE("a filler is a sequence of one token without a label, which isn't counted") {
  const data::MicroBatch batch = data::filler_batch();
  CHECK(batch.tokens.size() == 1);
  CHECK(batch.position_ids == Ints{0});
  CHECK(batch.cu_seqlens == std::vector<std::int32_t>{0, 1});
  CHECK(batch.labels == Ints{-100});
  CHECK(batch.label_count() == 0);
  CHECK(batch.sample_ids == Ints{-1});
  CHECK(batch.max_seqlen == 1);
  CHECK(batch.real_tokens == 0);
}

TEST_CASE("packing, micro sizes and ranks never change which sequences and targets a step has") {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < 40; ++i) lengths.push_back(2 + i * 13 % 29);
  const auto dataset = test::counting_dataset(lengths);
  const data::Sampler sampler(dataset, {.examples_per_step = 16});
  const data::Step step = sampler.step(1);
  // (token, position, label) of every token of the step: tokens are unique in this data set.
  const auto content = [&](const data::MicroOptions& options) {
    std::set<Ints> all;
    for (const data::MicroBatch& batch : data::make_micro_batches(dataset, step.examples, options)) {
      for (std::size_t t = 0; t < batch.tokens.size(); ++t)
        all.insert({batch.tokens[t], batch.position_ids[t], batch.labels[t]});
    }
    return all;
  };
  const std::set<Ints> reference = content({.micro_tokens = 1, .packing = false});
  CHECK(reference.size() > 200);
  CHECK(content({.micro_tokens = 50}) == reference);
  CHECK(content({.micro_tokens = 64, .micro_rows = 2}) == reference);
  CHECK(content({.micro_tokens = 100, .packing = false}) == reference);
  CHECK(content({.micro_tokens = 100000}) == reference);
}
