#include "bench/verdict.h"

#include "bench/made_up_runs.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::bench;
using Catch::Matchers::Contains;
using test::made_up_group;

namespace {

std::string verdict(const std::vector<Group>& groups) {
  return scaling_verdict(
      evaluate(groups, 1),
      {.train = [](int devices) { return "run on " + std::to_string(devices); },
       .measure = [](More more) { return more == More::kRepeats ? "bench again" : "bench longer"; }});
}

std::string all_notes(const std::vector<Group>& groups) {
  std::string out;
  for (const std::string& note : notes(evaluate(groups, 1), 1)) out += note + "\n";
  return out;
}

}  // namespace

TEST_CASE("four 3090s at 576 tokens/s each against 2,434 for one: train on one") {
  const double all = 4 * 576;
  CHECK(verdict({made_up_group(1, {2434, 2450, 2420}), made_up_group(4, {all, all - 20, all + 10})}) ==
        "4 devices are 0.95x of one: train on one; the command is `run on 1`.");
}

TEST_CASE("devices that pay are trained on") {
  CHECK(verdict({made_up_group(1, {100, 101, 99}), made_up_group(2, {190, 195, 189}),
                 made_up_group(4, {360, 350, 370})}) ==
        "2 devices are 1.91x, 4 devices 3.60x of one: train on 4; the command is `run on 4`.");
}

TEST_CASE("of numbers whose rates overlap the smaller one is meant") {
  CHECK_THAT(verdict({made_up_group(1, {100, 101, 99}), made_up_group(2, {190, 195, 189}),
                      made_up_group(4, {192, 188, 199})}),
             Contains("train on 2;") && !Contains("suffice"));
}

TEST_CASE("a ratio within the spread is called measured, with the command that would tell") {
  CHECK(
      verdict({made_up_group(1, {100, 120, 99}), made_up_group(2, {119, 125, 121})}) ==
      "2 devices measured 1.19x of one; these runs don't suffice to tell that from no difference (the ranges "
      "of tokens/s overlap): measure more with `bench longer`. Until then train on one; the command is `run "
      "on 1`.");
  CHECK_THAT(verdict({made_up_group(1, {896, 900, 400}), made_up_group(2, {481, 480, 500})}),
             Contains("2 devices measured 0.5") && Contains("don't suffice") && !Contains("no difference)"));
}

TEST_CASE("of several numbers those in doubt are named") {
  CHECK_THAT(
      verdict({made_up_group(1, {100, 101, 99}), made_up_group(2, {98, 103}), made_up_group(4, {150, 151})}),
      Contains("2 devices measured 1.00x, 4 devices 1.50x of one; these runs don't suffice to tell that of 2 "
               "devices from no difference (the ranges of tokens/s overlap)") &&
          Contains("Until then train on 4;"));
}

TEST_CASE("single runs tell nothing, however far apart, and repeats would") {
  CHECK_THAT(verdict({made_up_group(1, {100}), made_up_group(2, {195})}),
             Contains("measured 1.95x of one; these runs don't suffice") &&
                 Contains("(of single runs no spread is known): measure more with `bench again`. Until then "
                          "train on one"));
}

TEST_CASE("without a second number there is nothing to compare") {
  const Group failed{"2 devices", 2, {{.exit_code = 3, .error = "no such device"}}};
  CHECK_THAT(verdict({made_up_group(1, {100, 100}), failed}), Contains("Only 1 device could be measured"));
  CHECK_THAT(verdict({failed}), Contains("No run ended well"));
}

TEST_CASE("where one device is missing, the smallest number that ran stands in") {
  const Group failed{"1 device", 1, {{.exit_code = 1, .error = "out of memory"}}};
  CHECK_THAT(verdict({failed, made_up_group(2, {100, 101}), made_up_group(4, {180, 182})}),
             Contains("4 devices are 1.80x of 2 devices: train on 4; the command is `run on 4`."));
}

TEST_CASE("two runs are compared by name") {
  Group a = made_up_group(1, {100}), b = made_up_group(1, {135});
  a.name = "here";
  b.name = "there";
  CHECK(comparison_verdict(evaluate({a, b}, 1)) ==
        "there measured 1.35x as fast as here; that doesn't suffice to tell it from no difference (of single "
        "runs no spread is known): compare several pairs of runs.");
}

TEST_CASE("notes tell of failures, missing runs, threads and losses") {
  Group two = made_up_group(2, {180, 190});
  two.attempts[1].run.reset();
  two.attempts[1].exit_code = 3;
  two.attempts[1].error = "no such device";
  const std::vector<Group> groups{made_up_group(1, {100, 110}), two, {"4 devices", 4, {}}};
  const std::string text = all_notes(groups);
  CHECK_THAT(text, Contains("2 devices, round 2: exit code 3: no such device\n"));
  CHECK_THAT(text, Contains("4 devices: not run\n"));
  CHECK_THAT(text, Contains("Every process has 1 thread, however many there are."));
  CHECK_THAT(text, !Contains("losses differ"));

  two.attempts[0].run->threads = 2;
  for (StepSample& step : two.attempts[0].run->steps) step.loss *= 1.02;
  const std::string other = all_notes({made_up_group(1, {100, 110}), two});
  CHECK_THAT(other, Contains("2 devices: the losses differ by more"));
  CHECK_THAT(other, Contains("Processes have different numbers of threads."));
}
