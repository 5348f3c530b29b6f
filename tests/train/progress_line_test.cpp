#include "train/progress_line.h"

#include <cmath>
#include <limits>

#include "support/catch.h"

using namespace lorikeet::train;
using Catch::Contains;

namespace {

const ProgressNumbers kNumbers{.step = 120,
                               .total_steps = 345,
                               .tokens_per_second = 1234.4,
                               .seconds_left = 200,
                               .loss = 1.23456,
                               .grad_norm = 0.3123,
                               .lr = 2e-4};

}  // namespace

TEST_CASE("a line of progress has the rate and the time left first, and all of a usual step in 80 columns") {
  const std::string line = progress_line(kNumbers, 80);
  CHECK(line == "step 120/345  1234 tokens/s  3:20 left  loss 1.2346  grad norm 0.312  lr 2.0e-04");
  CHECK(line.size() == 80);
}

TEST_CASE("what doesn't fit is left out from the end") {
  CHECK(progress_line(kNumbers, 79) ==
        "step 120/345  1234 tokens/s  3:20 left  loss 1.2346  grad norm 0.312");
  CHECK(progress_line(kNumbers, 40) == "step 120/345  1234 tokens/s  3:20 left");
  CHECK(progress_line(kNumbers, 1) == "step 120/345");
}

TEST_CASE("no line is wider than the terminal, whatever the numbers") {
  ProgressNumbers large = kNumbers;
  large.step = large.total_steps = 1234567;
  large.tokens_per_second = 1e7;
  large.seconds_left = 1e6;
  large.loss = 12345;
  large.grad_norm = std::numeric_limits<double>::infinity();
  for (std::size_t width = 30; width < 200; ++width) {
    CHECK(progress_line(large, width).size() <= width);
    CHECK(progress_bar_line(large, width).size() <= width);
    CHECK(progress_bar_line(kNumbers, width).size() <= width);
  }
}

TEST_CASE("the bar takes the columns that are left") {
  CHECK(progress_bar_line(kNumbers, 79) ==
        "[##......] step 120/345  1234 tokens/s  3:20 left  loss 1.2346  grad norm 0.312");
  CHECK_THAT(progress_bar_line(kNumbers, 200),
             Contains("[######..............] step") && Contains("lr 2.0e-04"));
  CHECK_THAT(progress_bar_line(kNumbers, 40), !Contains("["));
  ProgressNumbers done = kNumbers;
  done.step = done.total_steps;
  done.seconds_left.reset();
  CHECK_THAT(progress_bar_line(done, 200),
             Contains("[####################] step 345/345") && !Contains("left"));
}

TEST_CASE("gradients that overflowed are reported in words") {
  ProgressNumbers overflow = kNumbers;
  overflow.grad_norm = std::nan("");
  CHECK_THAT(progress_line(overflow, 80), Contains("gradients overflowed"));
}

TEST_CASE("a time is shown as on a clock") {
  CHECK(format_clock(0) == "0:00");
  CHECK(format_clock(12.4) == "0:12");
  CHECK(format_clock(59.6) == "1:00");
  CHECK(format_clock(3723) == "1:02:03");
  CHECK(format_clock(360000) == "100:00:00");
  CHECK(format_clock(-1) == "0:00");
}

TEST_CASE("each tenth of a run ends with one step") {
  const auto count = [](std::int64_t total) {
    int tenths = 0;
    for (std::int64_t step = 1; step <= total; ++step) tenths += ends_tenth(step, total) ? 1 : 0;
    return tenths;
  };
  CHECK(count(345) == 10);
  CHECK(count(10) == 10);
  CHECK(count(3) == 3);
  CHECK(ends_tenth(35, 345));
  CHECK_FALSE(ends_tenth(34, 345));
  CHECK(ends_tenth(345, 345));
}
