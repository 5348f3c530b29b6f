#include "data/sampler.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;
using data::Sampler;

namespace {

std::vector<std::size_t> lengths(std::size_t count) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(3 + i * 7 % 11);
  return out;
}

std::vector<std::size_t> epoch_order(const Sampler& sampler, std::int64_t epoch) {
  std::vector<std::size_t> order;
  for (std::int64_t s = 0; s < sampler.total_steps(); ++s) {
    const data::Step step = sampler.step(s);
    if (step.epoch == epoch) order.insert(order.end(), step.examples.begin(), step.examples.end());
  }
  return order;
}

}  // namespace

TEST_CASE("an epoch takes every example once, in an order of its own that seed and epoch decide") {
  const auto dataset = test::counting_dataset(lengths(23));
  for (const bool by_tokens : {false, true}) {
    data::SamplerOptions options{.epochs = 3};
    (by_tokens ? options.tokens_per_step : options.examples_per_step) = by_tokens ? 30 : 5;
    const Sampler sampler(dataset, options);
    std::set<std::vector<std::size_t>> orders;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::size_t> order = epoch_order(sampler, epoch);
      orders.insert(order);
      std::sort(order.begin(), order.end());
      REQUIRE(order.size() == 23);
      for (std::size_t i = 0; i < 23; ++i) CHECK(order[i] == i);
    }
    CHECK(orders.size() == 3);
    CHECK(epoch_order(Sampler(dataset, options), 1) == epoch_order(sampler, 1));
    options.seed = 43;
    CHECK(epoch_order(Sampler(dataset, options), 0) != epoch_order(sampler, 0));
  }
}

TEST_CASE("the order of a seed is fixed for good") {
  // Changes of these values change what every run of old configs computes.
  const Sampler sampler(test::counting_dataset(lengths(8)), {.examples_per_step = 8, .seed = 42});
  CHECK(sampler.step(0).examples == std::vector<std::size_t>{3, 1, 6, 4, 5, 7, 2, 0});
}

TEST_CASE("an epoch's last, smaller batch is a step") {
  const Sampler sampler(test::counting_dataset(lengths(23)), {.examples_per_step = 5, .epochs = 2});
  CHECK(sampler.total_steps() == 10);
  CHECK(sampler.steps_in_epoch(0) == 5);
  CHECK(sampler.step(4).examples.size() == 3);
  CHECK(sampler.step(4).last_of_epoch);
  CHECK_FALSE(sampler.step(3).last_of_epoch);
  CHECK(sampler.step(5).epoch == 1);
}

TEST_CASE("a step of tokens takes whole examples while they fit, and at least one") {
  const auto dataset = test::counting_dataset({4, 4, 4, 50, 4, 4});
  const Sampler sampler(dataset, {.tokens_per_step = 9, .shuffle = false});
  std::vector<std::vector<std::size_t>> steps;
  for (std::int64_t s = 0; s < sampler.total_steps(); ++s) steps.push_back(sampler.step(s).examples);
  CHECK(steps == std::vector<std::vector<std::size_t>>{{0, 1}, {2}, {3}, {4, 5}});
}

TEST_CASE("max_steps replaces epochs, in both directions") {
  const auto dataset = test::counting_dataset(lengths(10));
  CHECK(Sampler(dataset, {.examples_per_step = 5, .epochs = 9, .max_steps = 3}).total_steps() == 3);
  const Sampler longer(dataset, {.examples_per_step = 5, .max_steps = 7});
  CHECK(longer.total_steps() == 7);
  CHECK(longer.step(6).epoch == 3);
  const Sampler tokens(dataset, {.tokens_per_step = 25, .max_steps = 11});
  CHECK(tokens.step(10).epoch > 0);
  CHECK_THROWS_AS(longer.step(7), Error);
  CHECK_THROWS_AS(longer.step(-1), Error);
}

TEST_CASE("seeking to a step gives what walking there gives, in any order of asking") {
  const auto dataset = test::counting_dataset(lengths(57));
  for (const bool by_tokens : {false, true}) {
    data::SamplerOptions options{.epochs = 4};
    (by_tokens ? options.tokens_per_step : options.examples_per_step) = by_tokens ? 40 : 6;
    const Sampler walked(dataset, options);
    const Sampler sought(dataset, options);
    for (std::int64_t s = walked.total_steps() - 1; s >= 0; --s) {
      const data::Step there = Sampler(dataset, options).step(s);
      CHECK(sought.step(s).examples == there.examples);
      CHECK(sought.step(s).epoch == there.epoch);
    }
    for (std::int64_t s = 0; s < walked.total_steps(); ++s)
      CHECK(walked.step(s).examples == sought.step(s).examples);
  }
}

TEST_CASE("batch sizes out of range, both or none are errors that name the key") {
  const auto dataset = test::counting_dataset(lengths(3));
  CHECK_THROWS_WITH(Sampler(dataset, {}), Contains("exactly one of batch.global"));
  CHECK_THROWS_WITH(Sampler(dataset, {.examples_per_step = 1, .tokens_per_step = 1}),
                    Contains("exactly one"));
  CHECK_THROWS_WITH(Sampler(dataset, {.examples_per_step = 0}), Contains("batch.global"));
  CHECK_THROWS_WITH(Sampler(dataset, {.tokens_per_step = -1}), Contains("batch.global_tokens"));
  CHECK_THROWS_WITH(Sampler(dataset, {.examples_per_step = 1, .epochs = 0}), Contains("training.epochs"));
  CHECK_THROWS_WITH(Sampler(dataset, {.examples_per_step = 1, .max_steps = 0}),
                    Contains("training.max_steps"));
  CHECK_THROWS_WITH(Sampler(data::TokenDataset(), {.examples_per_step = 1}), Contains("has none"));
}

TEST_CASE("a split holds out the fraction, once and for all by its seed") {
  const auto [rest, held] = data::split_indices(100, 0.1, 7);
  CHECK(held.size() == 10);
  CHECK(rest.size() == 90);
  std::set<std::size_t> all(rest.begin(), rest.end());
  all.insert(held.begin(), held.end());
  CHECK(all.size() == 100);
  CHECK(data::split_indices(100, 0.1, 7).second == held);
  CHECK(data::split_indices(100, 0.1, 8).second != held);
  CHECK(data::split_indices(5, 0.01, 7).second.size() == 1);
  CHECK(data::split_indices(5, 0.99, 7).first.size() == 1);
  CHECK_THROWS_AS(data::split_indices(5, 0.0, 7), Error);
  CHECK_THROWS_AS(data::split_indices(1, 0.5, 7), Error);
}
