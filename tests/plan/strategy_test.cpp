#include "plan/strategy.h"

#include "base/error.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::plan;
using Catch::Contains;
using test::error_text;

namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// A base of 16 GiB, 1 GiB of adapter, 3 GiB beside that during a step.
StrategyInput input(config::Strategy strategy, int world_size, int local_size, std::int64_t available_gb) {
  StrategyInput in{.settings = {.strategy = strategy},
                   .world_size = world_size,
                   .local_size = local_size,
                   .least_local_size = local_size,
                   .most_local_size = local_size,
                   .need = [](int degree) {
                     const std::int64_t held = 16 * kGiB / degree + kGiB;
                     return MemoryEstimate{.weights = held, .activations = 3 * kGiB};
                   }};
  if (available_gb > 0) in.available = available_gb * kGiB;
  return in;
}

using enum config::Strategy;

}  // namespace

TEST_CASE("auto replicates where the base fits and shares it inside a node elsewhere, with the numbers") {
  const Strategy fits = choose_strategy(input(kAuto, 8, 4, 24));
  CHECK(fits.degree == 1);
  CHECK(fits.name == "replicate");
  CHECK_THAT(fits.reason, Contains("20.0 GiB of 24.0 GiB"));
  const Strategy one_node = choose_strategy(input(kAuto, 4, 4, 12));
  CHECK(one_node.degree == 4);
  CHECK(one_node.name == "shard");
  CHECK_THAT(one_node.reason, Contains("20.0 GiB of 12.0 GiB"));
  const Strategy two_nodes = choose_strategy(input(kAuto, 8, 4, 12));
  CHECK(two_nodes.degree == 4);
  CHECK(two_nodes.name == "hybrid");
  CHECK(choose_strategy(input(kAuto, 8, 4, 0)).degree == 1);
  CHECK(choose_strategy(input(kAuto, 1, 1, 24)).degree == 1);
}

TEST_CASE("a strategy that is named is taken, and hybrid's degree are a node's ranks or what is given") {
  CHECK(choose_strategy(input(kReplicate, 8, 4, 24)).degree == 1);
  CHECK(choose_strategy(input(kShard, 8, 4, 24)).degree == 8);
  const Strategy hybrid = choose_strategy(input(kHybrid, 8, 4, 24));
  CHECK(hybrid.degree == 4);
  CHECK(hybrid.name == "hybrid");
  const Strategy one_node = choose_strategy(input(kHybrid, 4, 4, 24));
  CHECK(one_node.name == "shard");
  CHECK_THAT(one_node.reason, Contains("which hybrid is"));
  StrategyInput in = input(kHybrid, 8, 4, 24);
  in.settings.shard_degree = 2;
  CHECK(choose_strategy(in).degree == 2);
}

TEST_CASE("a degree that doesn't divide a node's ranks is refused") {
  StrategyInput in = input(kHybrid, 8, 4, 24);
  in.settings.shard_degree = 3;
  CHECK_THAT(error_text([&] { choose_strategy(in); }), Contains("3 doesn't divide the 4 ranks of this node"));
  in.settings.strategy = kShard;
  CHECK_THAT(error_text([&] { choose_strategy(in); }), Contains("is for distributed.strategy=hybrid alone"));
  StrategyInput uneven = input(kHybrid, 5, 3, 24);  // nodes of three and of two
  uneven.least_local_size = 2;
  uneven.most_local_size = 3;
  CHECK_THAT(error_text([&] { choose_strategy(uneven); }),
             Contains("auto means the ranks of a node, but nodes have from 2 to 3"));
  uneven.settings.shard_degree = 2;
  CHECK_THAT(error_text([&] { choose_strategy(uneven); }), Contains("2 doesn't divide the 3 ranks"));
}

TEST_CASE("what can't fit is an environment's error with the numbers, what might not is let through") {
  try {
    choose_strategy(input(kReplicate, 4, 4, 12));
    FAIL("expected an error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kEnvironment);
    CHECK_THAT(error.what(), Contains("replicate doesn't fit") && Contains("17.0 GiB on every device") &&
                                 Contains("12.0 GiB") && Contains("shard would need 5.0 GiB"));
  }
  CHECK_THAT(error_text([&] { choose_strategy(input(kAuto, 4, 4, 4)); }), Contains("more devices"));
  CHECK(choose_strategy(input(kReplicate, 4, 4, 18)).name == "replicate");  // a step may need more
}
