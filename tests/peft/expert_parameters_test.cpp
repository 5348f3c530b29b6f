#include "peft/expert_parameters.h"

#include <set>

#include "support/catch.h"

using namespace lorikeet::peft;

namespace {

using Names = std::set<std::string>;

const std::string kExperts = "model.layers.0.mlp.experts", kGateUp = kExperts + ".gate_up_proj",
                  kDown = kExperts + ".down_proj";

std::string wrapper(const std::string& parameter, const Names& adapted) {
  return wrapper_name(parameter, [&](const std::string& name) { return adapted.contains(name); });
}

std::optional<std::string> wrapped(const std::string& name, const Names& adapted) {
  return wrapped_parameter(name, [&](const std::string& other) { return adapted.contains(other); });
}

}  // namespace

TEST_CASE("a parameter's name within its layer") {
  CHECK(within_layer(kGateUp) == "mlp.experts.gate_up_proj");
  CHECK(within_layer("model.language_model.layers.12.experts.down_proj") == "experts.down_proj");
  CHECK(within_layer("experts.down_proj") == "experts.down_proj");
}

TEST_CASE("gate_up_proj and down_proj are the parameters of experts that may get an adapter") {
  CHECK(is_expert_parameter("mlp.experts.gate_up_proj"));
  CHECK(is_expert_parameter("down_proj"));
  CHECK_FALSE(is_expert_parameter("mlp.experts.gate_up_proj_bias"));
  CHECK_FALSE(is_expert_parameter("gate.weight"));
}

TEST_CASE(
    "of two parameters of a module PEFT wraps gate_up_proj first, one alone is the module's only wrapper") {
  const Names both{kGateUp, kDown};
  CHECK(wrapper(kGateUp, both) == kExperts + ".base_layer");
  CHECK(wrapper(kDown, both) == kExperts);
  CHECK(wrapper(kGateUp, {kGateUp}) == kExperts);
  CHECK(wrapper(kDown, {kDown}) == kExperts);
  CHECK(wrapper(kGateUp, {kGateUp, "model.layers.1.mlp.experts.down_proj"}) == kExperts);
}

TEST_CASE("a wrapper's parameter is found, and other modules have none") {
  for (const Names& adapted : {Names{kGateUp, kDown}, Names{kGateUp}, Names{kDown}}) {
    for (const std::string& parameter : adapted)
      CHECK(wrapped(wrapper(parameter, adapted), adapted) == parameter);
  }
  CHECK_FALSE(wrapped(kExperts + ".base_layer", {kGateUp}));
  CHECK_FALSE(wrapped(kExperts + ".base_layer.base_layer", {kGateUp, kDown}));
  CHECK_FALSE(wrapped(kExperts, {}));
  // Where a bare name means the parameters of all modules.
  const auto any = [](const std::string&) { return true; };
  CHECK_FALSE(wrapped_parameter("model.layers.0.self_attn.q_proj", any));
  CHECK(wrapped_parameter(kExperts, any) == kDown);
}
