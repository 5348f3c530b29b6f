#include "train/schedule.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::train;
using Catch::Contains;
using config::SchedulerName;
using test::error_text;

namespace {

config::SchedulerSettings settings(SchedulerName name, std::optional<double> ratio = std::nullopt,
                                   std::optional<std::int64_t> steps = std::nullopt) {
  config::SchedulerSettings s;
  s.name = name;
  s.warmup_ratio = ratio;
  s.warmup_steps = steps;
  return s;
}

}  // namespace

TEST_CASE("warm-up rises from zero by equal steps, whatever follows") {
  for (const SchedulerName name :
       {SchedulerName::kCosine, SchedulerName::kLinear, SchedulerName::kConstant}) {
    const Schedule s = make_schedule(settings(name, std::nullopt, 4), 0.8, 20);
    CHECK(s.at(0) == 0);
    CHECK(s.at(1) == Approx(0.2));
    CHECK(s.at(3) == Approx(0.6));
    CHECK(s.at(4) == Approx(0.8));
  }
}

TEST_CASE("constant stays") {
  const Schedule s = make_schedule(settings(SchedulerName::kConstant), 0.8, 20);
  CHECK(s.at(0) == 0.8);
  CHECK(s.at(19) == 0.8);
}

TEST_CASE("linear falls to zero at the step after the last") {
  // get_linear_schedule_with_warmup: (20 - s) / (20 - 4)
  const Schedule s = make_schedule(settings(SchedulerName::kLinear, std::nullopt, 4), 0.8, 20);
  CHECK(s.at(8) == Approx(0.8 * 12 / 16));
  CHECK(s.at(19) == Approx(0.8 / 16));
  CHECK(s.at(20) == 0);
  CHECK(s.at(25) == 0);
}

TEST_CASE("cosine falls by half a wave") {
  // get_cosine_schedule_with_warmup: (1 + cos(pi (s - 4) / 16)) / 2
  const Schedule s = make_schedule(settings(SchedulerName::kCosine, std::nullopt, 4), 1, 20);
  CHECK(s.at(8) == Approx(0.8535533906));  // (1 + sqrt(1/2)) / 2
  CHECK(s.at(12) == Approx(0.5));
  CHECK(s.at(16) == Approx(0.1464466094));
  CHECK(s.at(20) == Approx(0).margin(1e-15));
}

TEST_CASE("a least learning rate is where the fall ends") {
  config::SchedulerSettings with = settings(SchedulerName::kCosine);
  with.min_lr = 0.2;
  const Schedule s = make_schedule(with, 1, 20);
  CHECK(s.at(0) == 1);
  CHECK(s.at(10) == Approx(0.6));
  CHECK(s.at(20) == Approx(0.2));
}

TEST_CASE("a warm-up ratio is of the steps, rounded up, and leaves at least one step") {
  const auto warmup = [](double ratio, std::int64_t steps) {
    return make_schedule(settings(SchedulerName::kCosine, ratio), 1, steps).warmup_steps;
  };
  CHECK(warmup(0.03, 100) == 3);
  CHECK(warmup(0.03, 101) == 4);
  CHECK(warmup(0.03, 10) == 1);
  CHECK(warmup(0.03, 1) == 0);
  CHECK(warmup(0, 100) == 0);
}

TEST_CASE("a warm-up not shorter than the run is an error") {
  CHECK_THAT(error_text([] { make_schedule(settings(SchedulerName::kCosine, std::nullopt, 20), 1, 20); }),
             Contains("[lr_scheduler] warm-up of 20 steps is not shorter than the run's 20"));
  CHECK_THAT(error_text([] { make_schedule(settings(SchedulerName::kCosine, 1.0), 1, 20); }),
             Contains("warm-up of 20 steps"));
  CHECK(error_text([] { make_schedule(settings(SchedulerName::kCosine, std::nullopt, 19), 1, 20); }) ==
        "no error");
}

TEST_CASE("a least learning rate above the highest is an error") {
  config::SchedulerSettings with = settings(SchedulerName::kCosine);
  with.min_lr = 2;
  CHECK_THAT(error_text([&] { make_schedule(with, 1, 20); }), Contains("[lr_scheduler.min_lr]"));
}
