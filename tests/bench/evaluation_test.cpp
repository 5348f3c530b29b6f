#include "bench/evaluation.h"

#include <cmath>
#include <limits>

#include "bench/made_up_runs.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::bench;
using Catch::Matchers::Contains;
using test::error_text;
using test::made_up_group;
using test::made_up_run;

TEST_CASE("a run's rate is its tokens over its time behind the warm-up") {
  RunRecord run = made_up_run(1, 500);
  CHECK(tokens_per_second(run, 1) == Approx(500));
  CHECK(tokens_per_second(run, 0) == Approx(5000.0 / (20 + 8)));
  run.steps[2].tokens = 3000;  // a step of another size counts by its size
  CHECK(tokens_per_second(run, 1) == Approx(6000.0 / 8));
  CHECK_THAT(error_text([&] { tokens_per_second(run, 5); }), Contains("no step behind the 5 of its warm-up"));
}

TEST_CASE("a spread is the median and how far values reach") {
  const Spread odd = spread_of({3, 1, 2});
  CHECK(odd.median == 2);
  CHECK(odd.least == 1);
  CHECK(odd.most == 3);
  CHECK(spread_of({4, 1, 2, 3}).median == 2.5);
  CHECK(spread_of({7}).count == 1);
}

TEST_CASE("two spreads are apart when their ranges don't meet and none is a single value") {
  CHECK(apart(spread_of({1, 2, 3}), spread_of({4, 5})));
  CHECK(apart(spread_of({4, 5}), spread_of({1, 2, 3})));
  CHECK_FALSE(apart(spread_of({1, 2, 3}), spread_of({3, 5})));
  CHECK_FALSE(apart(spread_of({1}), spread_of({4, 5})));
}

TEST_CASE("a row holds the rate, shares of time, memory and what ran") {
  const Evaluation e = evaluate({made_up_group(1, {100, 110, 90}), made_up_group(2, {180, 220, 171})}, 1);
  REQUIRE(e.base == 0);
  const Row& two = e.rows[1];
  CHECK(two.tokens_per_second->median == Approx(180));
  CHECK(two.speed_up->median == Approx(1.9));  // of the rounds 1.8, 2.0, 1.9; the medians' ratio is 1.8
  CHECK(two.speed_up->least == Approx(1.8));
  CHECK(two.efficiency == Approx(0.95));
  CHECK(two.comm_share == Approx(0.2));
  CHECK(two.data_share == Approx(0.01));
  CHECK(two.memory_peak_bytes == std::uint64_t{1} << 30);
  CHECK(two.loss_difference == 0.0);
  CHECK(two.threads == 1);
  CHECK(e.rows[0].speed_up->median == 1);
  CHECK(e.rows[0].efficiency == 1.0);
}

TEST_CASE("runs that failed are told, and the others stay") {
  Group two = made_up_group(2, {180, 190});
  two.attempts[1].run.reset();
  two.attempts[1].exit_code = 3;
  two.attempts[1].error = "no such device";
  const Evaluation e = evaluate({made_up_group(1, {100, 110}), two, {"4 devices", 4, {}}}, 1);
  CHECK(e.rows[1].runs() == 1);
  CHECK(e.rows[1].speed_up->count == 1);
  CHECK(e.rows[1].failures == std::vector<std::string>{"round 2: exit code 3: no such device"});
  CHECK(e.rows[2].runs() == 0);
  CHECK_FALSE(e.rows[2].speed_up);
}

TEST_CASE("where one device can't run, the next number is what others are measured against") {
  const Group failed{"1 device", 1, {{.exit_code = 1, .error = "out of memory"}}};
  const Evaluation e = evaluate({failed, made_up_group(2, {100}), made_up_group(4, {180})}, 1);
  REQUIRE(e.base == 1);
  CHECK(e.rows[2].speed_up->median == Approx(1.8));
  CHECK(e.rows[2].efficiency == Approx(0.9));  // twice the devices
  CHECK_FALSE(evaluate({failed}, 1).base);
}

TEST_CASE("rounds that don't pair up leave the ratio of the medians") {
  Group one = made_up_group(1, {100}), two = made_up_group(2, {150});
  two.attempts[0].round = 1;
  const Evaluation e = evaluate({one, two}, 1);
  CHECK(e.rows[1].speed_up->median == Approx(1.5));
}

TEST_CASE("the loss difference is the largest of a step, warm-up included") {
  RunRecord run = made_up_run(2, 100);
  run.steps[0].loss = 2.02;
  run.steps[3].loss = 1.99;
  CHECK(loss_difference(run, made_up_run(1, 100)) == Approx(0.01));
  run.steps[1].loss = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isinf(loss_difference(run, made_up_run(1, 100))));
}

TEST_CASE("runs of different work aren't evaluated") {
  Group two = made_up_group(2, {100});
  two.attempts[0].run->policy = "fp32";
  CHECK_THAT(error_text([&] { evaluate({made_up_group(1, {100}), two}, 1); }),
             Contains("precision policy: bf16 and fp32") && Contains("can't be compared"));
}
