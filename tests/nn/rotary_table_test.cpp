#include "nn/rotary_table.h"

#include <ATen/ATen.h>

#include <cmath>

#include "nn/batch.h"
#include "support/catch.h"

using namespace lorikeet::nn;

namespace {

void check_frequencies(const RotarySpec& spec, const std::vector<double>& expected) {
  const at::Tensor found = RotaryTable(spec).inverse_frequencies();
  REQUIRE(found.numel() == static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(found.const_data_ptr<float>()[i] == Approx(expected[i]).epsilon(1e-6));
  }
}

const RotarySpec kLongrope{.head_dim = 4,
                           .rotary_dim = 4,
                           .scaling = RotarySpec::Scaling::kLongrope,
                           .original_max_position = 4,
                           .short_factor = {1, 2},
                           .long_factor = {2, 4},
                           .attention_factor = 1.5};

}  // namespace

TEST_CASE("frequencies fall from 1 by equal ratios") {
  // 10000^(-2i/8)
  check_frequencies({.head_dim = 8, .rotary_dim = 8}, {1, 0.1, 0.01, 0.001});
}

TEST_CASE("only the rotated dimensions count in a partial rotation") {
  check_frequencies({.head_dim = 8, .rotary_dim = 4, .theta = 100}, {1, 0.1});
}

TEST_CASE("linear scaling divides every frequency") {
  check_frequencies({.head_dim = 8, .rotary_dim = 8, .scaling = RotarySpec::Scaling::kLinear, .factor = 4},
                    {0.25, 0.025, 0.0025, 0.00025});
}

TEST_CASE(
    "proportional rotary has a whole head's frequencies in its first pairs, and turns the others not at "
    "all") {
  check_frequencies({.head_dim = 8,
                     .rotary_dim = 8,
                     .scaling = RotarySpec::Scaling::kProportional,
                     .factor = 4,
                     .rotated_pairs = 3},
                    {0.25, 0.025, 0.0025, 0});
}

TEST_CASE("llama3 scaling keeps short waves, divides long ones and blends between") {
  // Waves of 6.28, 62.8, 628 and 6283 positions against a context of 1000: below 1000/4 = 250 kept, above
  // 1000/1 divided by 8, and 628.3 blended with smooth = (1000/628.3185 - 1) / (4 - 1) = 0.19718310:
  // 0.01 ((1 - smooth) / 8 + smooth) = 0.01 (0.10035211 + 0.19718310).
  check_frequencies({.head_dim = 8,
                     .rotary_dim = 8,
                     .scaling = RotarySpec::Scaling::kLlama3,
                     .factor = 8,
                     .low_freq_factor = 1,
                     .high_freq_factor = 4,
                     .original_max_position = 1000},
                    {1, 0.1, 0.0029753521, 0.000125});
}

TEST_CASE("yarn keeps what turns often, divides what turns seldom and blends between") {
  // With a base of 100, pair p of a head of 8 turns 64 / (2 pi 100^(p/4)) times in 64
  // positions: 10.2, 3.2, 1.02, 0.32. A beta_fast of 4 lies at pair 8 ln(64 / (8 pi)) / (2 ln 100) = 0.81188,
  // a beta_slow of 1 at 2.016.
  RotarySpec spec{.head_dim = 8,
                  .rotary_dim = 8,
                  .theta = 100,
                  .scaling = RotarySpec::Scaling::kYarn,
                  .factor = 4,
                  .original_max_position = 64,
                  .beta_fast = 4};
  // Truncated to 0 and 3, a third of the blend a pair.
  check_frequencies(spec, {1, 0.31622777 * 0.75, 0.1 * 0.5, 0.031622777 * 0.25});
  spec.truncate = false;
  const double second = (1 - 0.81188) / (2.016 - 0.81188), third = (2 - 0.81188) / (2.016 - 0.81188);
  check_frequencies(spec,
                    {1, 0.31622777 * (1 - 0.75 * second), 0.1 * (1 - 0.75 * third), 0.031622777 * 0.25});
}

TEST_CASE("queries beyond the original length are scaled by how often they went past it") {
  RotarySpec spec{.head_dim = 4, .rotary_dim = 4, .original_max_position = 4, .query_beta = 0.5};
  Batch batch;
  batch.position_ids = at::tensor(std::vector<std::int64_t>{0, 3, 4, 11});
  batch.positions = 12;
  const at::Tensor scale = RotaryTable(spec).rows(batch).query_scale;
  REQUIRE(scale.sizes() == at::IntArrayRef({4, 1}));
  const float* values = scale.const_data_ptr<float>();
  CHECK(values[0] == 1);
  CHECK(values[1] == 1);
  CHECK(values[2] == Approx(1 + 0.5 * std::log(2.0)));
  CHECK(values[3] == Approx(1 + 0.5 * std::log(3.0)));
  batch.positions = 4;  // as long as none does, nothing is multiplied
  CHECK_FALSE(RotaryTable(spec).rows(batch).query_scale.defined());
  spec.query_beta = 0;
  batch.positions = 12;
  CHECK_FALSE(RotaryTable(spec).rows(batch).query_scale.defined());
}

TEST_CASE("rows are the cosine and sine of position times frequency, also beyond the first table") {
  const RotaryTable table({.head_dim = 4, .rotary_dim = 4});
  for (const std::int64_t last : {7, 5000}) {
    Batch batch;
    batch.position_ids = at::tensor(std::vector<std::int64_t>{0, 3, last});
    batch.positions = last + 1;
    const auto rows = table.rows(batch);
    REQUIRE(rows.cos.sizes() == at::IntArrayRef({3, 2}));
    const float* cos = rows.cos.const_data_ptr<float>();
    const float* sin = rows.sin.const_data_ptr<float>();
    CHECK(cos[0] == 1);
    CHECK(sin[1] == 0);
    CHECK(cos[2] == Approx(std::cos(3.0)).margin(1e-6));
    CHECK(sin[3] == Approx(std::sin(0.03)).margin(1e-6));
    CHECK(cos[5] == Approx(std::cos(0.01 * static_cast<double>(last))).margin(1e-5));
  }
}

TEST_CASE("longrope divides each frequency by its factor of short or long sequences") {
  const RotaryTable table(kLongrope);
  CHECK(table.switch_length() == 4);
  CHECK(at::allclose(table.inverse_frequencies(4), at::tensor(std::vector<float>{1, 0.005F})));
  CHECK(at::allclose(table.inverse_frequencies(5), at::tensor(std::vector<float>{0.5F, 0.0025F})));
  CHECK_FALSE(RotaryTable({.head_dim = 4, .rotary_dim = 4}).switch_length());
}

TEST_CASE("each sequence takes longrope's factors by its own length, whatever it is packed with") {
  const RotaryTable table(kLongrope);
  const std::vector<std::vector<std::int32_t>> sequences{{1, 2, 3, 4}, {}, {1, 2, 3, 4, 5}, {1}};
  const auto rows = table.rows(pack_sequences(sequences, {}, at::kCPU));
  std::vector<at::Tensor> cos, sin;
  for (const auto& sequence : sequences) {
    const auto alone = table.rows(pack_sequences({sequence}, {}, at::kCPU));
    cos.push_back(alone.cos);
    sin.push_back(alone.sin);
  }
  CHECK(at::equal(rows.cos, at::cat(cos)));
  CHECK(at::equal(rows.sin, at::cat(sin)));
  CHECK(rows.sin[3][0].item<float>() == Approx(1.5 * std::sin(3.0)));
  CHECK(rows.sin[7][0].item<float>() == Approx(1.5 * std::sin(1.5)));
}

TEST_CASE("a sequence that is being decoded counts with its earlier tokens") {
  const RotaryTable table(kLongrope);
  const auto rows = table.rows(pack_sequences({{1}, {1}}, {3, 4}, at::kCPU));
  CHECK(rows.sin[0][0].item<float>() == Approx(1.5 * std::sin(3.0)));
  CHECK(rows.sin[1][0].item<float>() == Approx(1.5 * std::sin(2.0)));
}
