#include "data/packing.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/philox.h"
#include "support/catch.h"

using namespace lorikeet;
using data::Groups;

namespace {

std::int64_t tokens_of(const std::vector<std::size_t>& group, const std::vector<std::int64_t>& lengths) {
  std::int64_t total = 0;
  for (const std::size_t i : group) total += lengths[i];
  return total;
}

std::vector<std::int64_t> random_lengths(std::uint64_t seed, std::size_t count, std::uint64_t longest) {
  PhiloxStream stream(seed, "packing test");
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < count; ++i)
    lengths.push_back(1 + static_cast<std::int64_t>(stream.below(longest)));
  return lengths;
}

}  // namespace

TEST_CASE("every example is in one micro-batch, whole, and limits hold") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto lengths = random_lengths(seed, 1 + seed * 3, 120);
    for (const bool packing : {false, true}) {
      const data::MicroOptions options{.micro_tokens = 100, .micro_rows = 4, .packing = packing};
      std::set<std::size_t> seen;
      for (const auto& group : data::group_examples(lengths, options)) {
        CHECK(!group.empty());
        CHECK(group.size() <= 4);
        CHECK((tokens_of(group, lengths) <= 100 || group.size() == 1));
        CHECK(std::is_sorted(group.begin(), group.end()));
        for (const std::size_t i : group) CHECK(seen.insert(i).second);
      }
      CHECK(seen.size() == lengths.size());
    }
  }
}

TEST_CASE("packing takes the micro-batch with the least room that fits") {
  CHECK(data::group_examples(std::vector<std::int64_t>{3, 7, 5, 5, 3, 1}, {.micro_tokens = 10}) ==
        Groups{{0, 1}, {2, 3}, {4, 5}});
  // 6 and 8 are open with room 4 and 2: the 2 goes to the 8.
  CHECK(data::group_examples(std::vector<std::int64_t>{6, 2, 8}, {.micro_tokens = 10}) ==
        Groups{{1, 2}, {0}});
}

TEST_CASE("packing needs at most 11/9 of the least possible and rarely more than it") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto lengths = random_lengths(seed, 200, 60);
    const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    const auto groups = data::group_examples(lengths, {.micro_tokens = 200});
    const std::int64_t least = (total + 199) / 200;
    CHECK(static_cast<std::int64_t>(groups.size()) <= least + 1);
    CHECK(groups.size() <= data::group_examples(lengths, {.micro_tokens = 200, .packing = false}).size());
  }
}

TEST_CASE("without packing neighbours stay together in the step's order") {
  CHECK(data::group_examples(std::vector<std::int64_t>{3, 7, 5, 5, 3, 1},
                             {.micro_tokens = 10, .packing = false}) == Groups{{0, 1}, {2, 3}, {4, 5}});
  CHECK(data::group_examples(std::vector<std::int64_t>{6, 2, 8}, {.micro_tokens = 10, .packing = false}) ==
        Groups{{0, 1}, {2}});
  CHECK(data::group_examples(std::vector<std::int64_t>{1, 1, 1}, {.micro_rows = 1, .packing = false}) ==
        Groups{{0}, {1}, {2}});
}

TEST_CASE("an example longer than a micro-batch goes alone") {
  CHECK(data::group_examples(std::vector<std::int64_t>{5, 50, 4}, {.micro_tokens = 10}) ==
        Groups{{1}, {0, 2}});
}

TEST_CASE("limits below one are errors") {
  const std::vector<std::int64_t> lengths{1};
  CHECK_THROWS_WITH(data::group_examples(lengths, {.micro_tokens = 0}),
                    Catch::Contains("batch.micro_tokens"));
  CHECK_THROWS_WITH(data::group_examples(lengths, {.micro_rows = 0}), Catch::Contains("batch.micro]"));
  CHECK_THROWS_AS(data::spread_over_ranks(lengths, 0), Error);
}

TEST_CASE("ranks get each micro-batch once, equally many turns, and about the same tokens") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto tokens = random_lengths(seed, 1 + seed * 5, 1000);
    const std::int64_t largest = *std::max_element(tokens.begin(), tokens.end());
    for (const std::int64_t world_size : {1, 2, 3, 8}) {
      const auto spread = data::spread_over_ranks(tokens, world_size);
      REQUIRE(spread.size() == static_cast<std::size_t>(world_size));
      std::multiset<std::size_t> seen;
      std::vector<std::int64_t> loads;
      for (const auto& own : spread) {
        CHECK(own.size() == (tokens.size() + spread.size() - 1) / spread.size());
        loads.push_back(0);
        for (const auto& turn : own) {
          if (!turn) continue;
          seen.insert(*turn);
          loads.back() += tokens[*turn];
        }
      }
      CHECK(seen.size() == tokens.size());
      CHECK(std::set<std::size_t>(seen.begin(), seen.end()).size() == tokens.size());
      const std::int64_t total = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
      CHECK(*std::max_element(loads.begin(), loads.end()) <= total / world_size + largest);
      CHECK(data::spread_over_ranks(tokens, world_size) == spread);
    }
  }
}
