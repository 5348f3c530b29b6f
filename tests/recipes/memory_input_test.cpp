#include "recipes/memory_input.h"

#include "models/toy_fused.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;
using recipes::AdapterColumns;
using Columns = std::array<std::int64_t, plan::kGroups>;

namespace {

AdapterColumns columns(const std::vector<std::string>& targets, const nn::CausalLMSpec& spec) {
  const ToyLora toy({.rank = 3, .target_modules = targets}, fp32_policy(), {}, spec);
  return recipes::adapter_columns(toy.model.spec(), toy.adapters);
}

}  // namespace

TEST_CASE("every adapted module of a group adds its rank, in the order q k v, o, gate up, down") {
  CHECK(columns({"all-linear"}, toy_spec()).of_layer == Columns{9, 3, 6, 3});
  CHECK(columns({"all-linear"}, toy_spec()).head == 0);
  CHECK(columns({"key", "w2", "output"}, toy_spec()).of_layer == Columns{3, 0, 0, 3});
  CHECK(columns({"key", "w2", "output"}, toy_spec()).head == 3);
}

TEST_CASE("a fused module counts one rank") {
  CHECK(columns({"all-linear"}, fused_toy_spec()).of_layer == Columns{3, 3, 3, 3});
  CHECK(columns({"w13", "dense"}, fused_toy_spec()).of_layer == Columns{0, 3, 3, 0});
  CHECK(columns({"qkv", "output"}, fused_toy_spec()).of_layer == Columns{3, 0, 0, 0});
  CHECK(columns({"qkv", "output"}, fused_toy_spec()).head == 3);
}
