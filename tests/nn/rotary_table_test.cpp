#include "nn/rotary_table.h"

#include <ATen/ATen.h>

#include <cmath>

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

TEST_CASE("rows are the cosine and sine of position times frequency, also beyond the first table") {
  const RotaryTable table({.head_dim = 4, .rotary_dim = 4});
  for (const std::int64_t last : {7, 5000}) {
    const auto rows = table.rows(at::tensor(std::vector<std::int64_t>{0, 3, last}), last + 1);
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
