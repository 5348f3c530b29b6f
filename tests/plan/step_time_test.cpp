#include "plan/step_time.h"

#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::plan;

namespace {

// 10 s of work, 2 MB of gradients, a link of 1 MB/s with 10 ms a message.
StepTimeInput input() {
  return {.flops = 1e12,
          .device_flops = 1e11,
          .gradient_bytes = 2e6,
          .reduce_link = {1e6, 0.01},
          .gather_link = {1e6, 0.01}};
}

double sum_of_shares(const std::vector<UnitUse>& uses) {
  double sum = 0;
  for (const UnitUse& use : uses) sum += use.compute_share;
  return sum;
}

}  // namespace

TEST_CASE("one device computes and waits for nothing") {
  const StepTime time = step_time(input());
  CHECK(time.compute == Approx(10));
  CHECK(time.reduce == 0);
  CHECK(time.gather == 0);
}

TEST_CASE("a small adapter's sum is waited for whole, by the ring's formula") {
  StepTimeInput in = input();
  in.world_size = 4;
  const StepTime time = step_time(in);
  CHECK(time.compute == Approx(2.5));
  CHECK(time.reduce == Approx(2 * 0.75 * 2e6 / 1e6 + 2 * 3 * 0.01));
  CHECK(time.gather == 0);
}

TEST_CASE("full buckets travel beside half of the last micro-batch") {
  StepTimeInput in = input();
  in.world_size = 2;
  in.gradient_bytes = 3 * (8 << 20);
  // 25.2 s for three full buckets, beside half of 5 s.
  CHECK(step_time(in).reduce == Approx(3 * (8 << 20) / 1e6 + 0.02 - 2.5));
  in.reduce_link = {1e9, 0};
  CHECK(step_time(in).reduce == 0);
}

TEST_CASE("bytes that the device copies itself are its own time") {
  StepTimeInput in = input();
  in.world_size = 2;
  in.seconds_per_byte = 1e-7;
  CHECK(step_time(in).compute == Approx(5 + 2 * 2e6 * 1e-7));
}

TEST_CASE("a micro-batch uses tables once and layers twice, but for those where the direction turns") {
  const nn::ModelShape shape{
      .layers = 3, .hidden_size = 10, .vocab_size = 100, .layer_linear_parameters = 3 * 400};
  const auto uses = unit_uses(shape, 2, 0.4);
  std::vector<double> bytes;
  for (const UnitUse& use : uses) bytes.push_back(use.gathered_bytes);
  CHECK(bytes == std::vector<double>{2000, 0, 800, 800, 2000, 0, 800, 800});
  CHECK(sum_of_shares(uses) == Approx(1));
  CHECK(uses[4].compute_share == Approx(0.4));
}

TEST_CASE("weights in parts cost what their gathers take beyond the work beside them, each micro-batch") {
  const nn::ModelShape shape{
      .layers = 3, .hidden_size = 1000, .vocab_size = 1000, .layer_linear_parameters = 3'000'000};
  StepTimeInput in = input();
  in.world_size = 2;
  in.degree = 2;
  in.turns = 5;
  in.gradient_bytes = 0;
  in.uses = unit_uses(shape, 2, 0.4);
  // A unit's gather: half of 2 MB at 1 MB/s and a message: 1.01 s. A turn computes 1 s, a layer of it 0.1.
  // Six units come a turn, each beside a layer: beside the head the last layer is still there, and beside the
  // embedding the first.
  const double turn = 6 * (1.01 - 0.1);
  CHECK(step_time(in).gather == Approx(5 * turn));
  in.gather_link = {1e9, 0};
  CHECK(step_time(in).gather == Approx(0).margin(1e-9));
  in.gather_link = {1e5, 0};
  CHECK(step_time(in).gather > 9 * 5 * turn);
}
