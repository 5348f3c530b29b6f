#include "plan/micro_size.h"

#include "data/data_fixture.h"
#include "data/micro_batch.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

plan::MicroSize counted(const data::TokenDataset& dataset, const data::Sampler& sampler,
                        const data::MicroOptions& options) {
  plan::MicroSize most;
  for (std::int64_t index = 0; index < sampler.total_steps(); ++index) {
    for (const auto& micro : data::make_micro_batches(dataset, sampler.step(index).examples, options)) {
      most.tokens = std::max(most.tokens, micro.real_tokens);
      most.label_tokens = std::max(most.label_tokens, micro.label_count());
      most.longest = std::max(most.longest, micro.max_seqlen);
      most.sequences = std::max(most.sequences, micro.sequences());
    }
  }
  return most;
}

}  // namespace

TEST_CASE("no micro-batch is larger than the bound, and the bound is near") {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < 200; ++i) lengths.push_back(3 + i * 7 % 50);
  const auto dataset = test::counting_dataset(lengths);
  const data::Sampler sampler(dataset, {.examples_per_step = 8});
  for (const std::int64_t micro_tokens : {10, 64, 100, 1000}) {
    const data::MicroOptions options{.micro_tokens = micro_tokens};
    const auto bound = plan::largest_micro_batch(dataset, sampler, options);
    const auto most = counted(dataset, sampler, options);
    CHECK(most.tokens <= bound.tokens);
    CHECK(most.label_tokens <= bound.label_tokens);
    CHECK(bound.tokens <= most.tokens * 12 / 10);
    CHECK(bound.longest == most.longest);
    CHECK(most.sequences <= bound.sequences);
    CHECK(bound.sequences <= 2 * most.sequences);
  }
  const data::MicroOptions rows{.micro_tokens = 1000, .micro_rows = 2};
  CHECK(counted(dataset, sampler, rows).tokens <= plan::largest_micro_batch(dataset, sampler, rows).tokens);
  CHECK(plan::largest_micro_batch(dataset, sampler, rows).tokens <= 2 * 52);
  CHECK(plan::largest_micro_batch(dataset, sampler, rows).sequences == 2);
}

TEST_CASE("the bound is over all epochs, whose orders make other steps") {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < 200; ++i) lengths.push_back(3 + i * 7 % 50);
  const auto dataset = test::counting_dataset(lengths);
  const data::MicroOptions options{.micro_tokens = 1000};
  const data::Sampler one(dataset, {.examples_per_step = 8}),
      many(dataset, {.examples_per_step = 8, .epochs = 20});
  const auto most = counted(dataset, many, options);
  CHECK(most.tokens > plan::largest_micro_batch(dataset, one, options).tokens);
  CHECK(most.tokens <= plan::largest_micro_batch(dataset, many, options).tokens);
  plan::LargestMicroBatches largest(dataset, many);
  for (int asked = 0; asked < 2; ++asked) {
    CHECK(largest.of(options).tokens == plan::largest_micro_batch(dataset, many, options).tokens);
    CHECK(largest.of({.micro_tokens = 10}).tokens ==
          plan::largest_micro_batch(dataset, many, {.micro_tokens = 10}).tokens);
  }
}

TEST_CASE("the fullest micro-batch holds the longest rows that fit") {
  const auto dataset = test::counting_dataset({5, 30, 8, 20, 9});
  const auto of = [&](const data::MicroOptions& options) {
    return plan::fullest_micro_batch(dataset, options);
  };
  CHECK(of({.micro_tokens = 60}) == std::vector<std::size_t>{1, 3, 4});
  CHECK(of({.micro_tokens = 40}) == std::vector<std::size_t>{1, 4});
  CHECK(of({.micro_tokens = 10}) == std::vector<std::size_t>{1});
  CHECK(of({.micro_tokens = 60, .micro_rows = 2}) == std::vector<std::size_t>{1, 3});
}
