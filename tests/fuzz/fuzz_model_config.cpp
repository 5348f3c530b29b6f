// Any bytes as a Llama's config.json: of what is accepted, sizes fit each other, their products fit 64 bits
// and the rotary numbers are finite in fp32; blocks of a quantised checkpoint have possible extents.
#include <cmath>

#include "base/json.h"
#include "fuzz.h"
#include "models/llama/config.h"
#include "models/quantization_config.h"

using namespace lorikeet;

namespace {

void try_quantization(std::string_view input) {
  const auto found = fuzz::accepted([&] {
    const Json json = Json::parse(input, "input");
    return models::quantization_in_config(JsonView(json, "input"));
  });
  if (!found || !*found) return;
  if (const auto* four_bits = std::get_if<precision::FourBits>(&**found)) {
    fuzz::require(four_bits->block == 64 && four_bits->nested_block >= 0);
    return;
  }
  const auto& float8 = std::get<precision::Float8>(**found);
  fuzz::require(float8.block_rows >= 0 && float8.block_cols >= 0 && float8.block_rows < 1 << 21 &&
                float8.block_cols < 1 << 21);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try_quantization(fuzz::view(data, size));
  const auto config = fuzz::accepted([&] {
    const Json json = Json::parse(fuzz::view(data, size), "input");
    return models::read_llama_config(JsonView(json, "input"));
  });
  if (!config) return 0;
  const models::LlamaConfig& c = *config;
  for (const std::int64_t number : {c.vocab_size, c.hidden_size, c.intermediate_size, c.layers, c.heads,
                                    c.kv_heads, c.head_dim, c.max_position})
    fuzz::require(number > 0);
  fuzz::require(c.heads % c.kv_heads == 0 && c.head_dim % 2 == 0);

  const double attention = 2.0 * c.hidden_size * c.head_dim * (c.heads + c.kv_heads);
  const double mlp = 3.0 * c.hidden_size * c.intermediate_size;
  const double outer = 2.0 * c.vocab_size * c.hidden_size;
  fuzz::require(8 * (c.layers * (attention + mlp) + outer) < 0x1p63);  // bytes, at most 8 a number

  const nn::RotarySpec& r = c.rotary;
  fuzz::require(r.head_dim == c.head_dim && r.rotary_dim == c.head_dim);
  for (const double number : {r.theta, r.factor, r.original_max_position / r.low_freq_factor,
                              1 / (r.high_freq_factor - r.low_freq_factor)}) {
    fuzz::require(number > 0 && std::isfinite(static_cast<float>(number)));
  }
  return 0;
}
