#include "plan/spread.h"

#include "data/data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

plan::Spread spread(const data::TokenDataset& dataset, std::int64_t micro_tokens, int world_size) {
  const data::Sampler sampler(dataset, {.examples_per_step = 8, .shuffle = false});
  return plan::spread_of_steps(dataset, sampler, {.micro_tokens = micro_tokens}, world_size);
}

}  // namespace

TEST_CASE("rows of one length fall evenly to the ranks") {
  const auto dataset = test::counting_dataset(std::vector<std::size_t>(64, 10));
  CHECK(spread(dataset, 20, 1).turns == Approx(4));
  CHECK(spread(dataset, 20, 1).busiest_share == Approx(1));
  CHECK(spread(dataset, 20, 4).turns == Approx(1));
  CHECK(spread(dataset, 20, 4).busiest_share == Approx(0.25));
}

TEST_CASE("a row that is longer than the rest keeps its rank busy while others wait") {
  std::vector<std::size_t> lengths(8, 10);
  lengths[3] = 70;
  const auto dataset = test::counting_dataset(lengths);
  CHECK(spread(dataset, 70, 2).busiest_share == Approx(0.5));
  CHECK(spread(dataset, 70, 4).busiest_share == Approx(0.5));
}

TEST_CASE("more ranks than rows leave some without work") {
  const auto dataset = test::counting_dataset(std::vector<std::size_t>(8, 10));
  CHECK(spread(dataset, 10, 16).busiest_share == Approx(1.0 / 8));
}
