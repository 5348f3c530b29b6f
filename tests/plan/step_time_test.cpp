#include "plan/step_time.h"

#include "models/registry.h"
#include "models/toy_family.h"
#include "parallel/weight_gatherer.h"
#include "peft/lora.h"
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

TEST_CASE("the step waits for the device that has most to do") {
  StepTimeInput in = input();
  in.world_size = 4;
  in.busiest_share = 0.4;
  CHECK(step_time(in).compute == Approx(4));
}

TEST_CASE("a micro-batch takes at least what reading the weights takes") {
  StepTimeInput in = input();
  in.turns = 4;
  in.least_turn_seconds = 2;
  CHECK(step_time(in).compute == Approx(10));
  in.least_turn_seconds = 3;
  CHECK(step_time(in).compute == Approx(12));
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
  const auto uses = unit_uses(shape, {2, 2}, 0.4);
  std::vector<double> bytes;
  for (const UnitUse& use : uses) bytes.push_back(use.gathered_bytes);
  CHECK(bytes == std::vector<double>{2000, 0, 800, 800, 2000, 0, 800, 800});
  CHECK(sum_of_shares(uses) == Approx(1));
  CHECK(uses[4].compute_share == Approx(0.4));
}

TEST_CASE("the uses are what the gatherer fetches") {
  const Json json =
      Json::parse(R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "tie_word_embeddings": false})",
                  "config");
  peft::LoraAdapters adapters({.rank = 2, .alpha = 4}, test::fp32_policy(), /*seed=*/1);
  peft::LoraFactory factory(test::fp32_policy(), adapters);
  const nn::CausalLM model(models::model_spec(JsonView(json, "config")), factory);
  double bytes = 0;
  for (const UnitUse& use : unit_uses(model.shape(), {4, 4}, 0.4)) bytes += use.gathered_bytes;
  CHECK(bytes == static_cast<double>(parallel::fetch_cost(model, 2).payload_bytes));
}

TEST_CASE("the unit of layers' inputs is fetched before the layers, or still there where backward read it") {
  for (const bool learns : {false, true}) {
    CAPTURE(learns);
    const Json json = Json::parse(R"({"model_type": "gemma4_text", "vocab_size": 512, "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "global_head_dim": 16, "max_position_embeddings": 32, "sliding_window": 8,
        "layer_types": ["full_attention", "full_attention", "full_attention"],
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 512})",
                                  "config");
    peft::LoraConfig config{.rank = 2, .alpha = 4};
    if (!learns) config.target_modules = {"q_proj"};
    peft::LoraAdapters adapters(config, test::fp32_policy(), /*seed=*/1);
    peft::LoraFactory factory(test::fp32_policy(), adapters);
    const nn::CausalLM model(models::model_spec(JsonView(json, "config")), factory);
    REQUIRE(model.layer_inputs_learn() == learns);
    const std::int64_t table = std::int64_t{512} * 3 * 8, projection = std::int64_t{64} * 3 * 8;
    const auto uses = unit_uses(model.shape(), {4, 4}, 0.4,
                                {.bytes = 4.0 * static_cast<double>(table + projection),
                                 .linear_parameters = projection,
                                 .learns = learns});
    double bytes = 0;
    for (const UnitUse& use : uses) bytes += use.gathered_bytes;
    CHECK(bytes == static_cast<double>(parallel::fetch_cost(model, 2).payload_bytes));
    CHECK(uses.size() == model.units_in_order(/*training=*/true).size());
    CHECK(sum_of_shares(uses) == Approx(1));
  }
}

TEST_CASE("weights in parts cost what their gathers take beyond the work beside them, each micro-batch") {
  const nn::ModelShape shape{
      .layers = 3, .hidden_size = 1000, .vocab_size = 1000, .layer_linear_parameters = 3'000'000};
  StepTimeInput in = input();
  in.world_size = 2;
  in.degree = 2;
  in.turns = 5;
  in.gradient_bytes = 0;
  in.uses = unit_uses(shape, {2, 2}, 0.4);
  // A unit's gather: half of 2 MB at 1 MB/s and a message: 1.01 s. A turn computes 1 s, a layer of it 0.1.
  // Six units come a turn, five of them beside a layer. The last layer is still there behind the head, so
  // that the one before it comes beside both, and the first is behind the embedding, which computes nothing.
  const double turn = 5 * (1.01 - 0.1) + (1.01 - 0.1 - 0.4);
  CHECK(step_time(in).gather == Approx(5 * turn));
  in.gather_link = {1e9, 0};
  CHECK(step_time(in).gather == Approx(0).margin(1e-9));
  in.gather_link = {1e5, 0};
  CHECK(step_time(in).gather > 9 * 5 * turn);
}

// benchmarks/results/links_cpu.md: two ranks of one core each, joined by a link of a given speed; the 57M
// model, 32 rows of 128 tokens a step in two turns. Device and copying are calibrated at 1 Gbit/s alone.
TEST_CASE("the formula is within 20% of what was measured over links of other speeds") {
  const nn::ModelShape shape{.layers = 8,
                             .hidden_size = 512,
                             .heads = 8,
                             .kv_heads = 4,
                             .head_dim = 64,
                             .intermediate_size = 1408,
                             .vocab_size = 32000,
                             .layer_linear_parameters = 8 * 2'949'120};
  constexpr double kHeadFlops = 4.0 * 512 * 32000 * 4064;
  constexpr double kFlops = 6.952e11;  // train::step_flops
  const auto link = [](double gigabits) {
    constexpr double kPayloadShare = 1448.0 / 1514;  // of an Ethernet frame
    return Link{gigabits * 1e9 / 8 * kPayloadShare, 0};
  };
  const auto predicted = [&](int degree, double gigabits) {
    return step_time({.flops = kFlops,
                      .device_flops = 8.75e10,
                      .world_size = 2,
                      .degree = degree,
                      .turns = 2,
                      .gradient_bytes = 4'784'128,
                      .uses = unit_uses(shape, {2, 2}, kHeadFlops / kFlops),
                      .reduce_link = link(gigabits),
                      .gather_link = link(gigabits),
                      .seconds_per_byte = 2.4e-9})
        .total();
  };
  constexpr double kNoLimit = 1000;
  CHECK(predicted(1, 1) == Approx(4.03).epsilon(0.01));  // calibrated here
  CHECK(predicted(2, 1) == Approx(4.94).epsilon(0.02));
  CHECK(predicted(1, kNoLimit) == Approx(4.35).epsilon(0.2));
  CHECK(predicted(1, 0.1) == Approx(4.53).epsilon(0.2));
  CHECK(predicted(2, kNoLimit) == Approx(4.62).epsilon(0.2));
  CHECK(predicted(2, 0.1) == Approx(16.66).epsilon(0.2));
}
