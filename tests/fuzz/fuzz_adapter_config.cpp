// Any bytes as adapter_config.json: what is accepted has a scale, and is written in a form that reads back
// equal.
#include <cmath>

#include "base/json.h"
#include "fuzz.h"
#include "peft/adapter_config.h"
#include "peft/target_rules.h"

using namespace lorikeet;
using namespace lorikeet::peft;

namespace {
const std::string kModule = "model.layers.0.mlp.up_proj";
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = fuzz::accepted([&] {
    const Json json = Json::parse(fuzz::view(data, size), "input");
    LoraConfig config = read_adapter_config(JsonView(json, "input"));
    const TargetRules rules(config);  // patterns compile, and don't run away
    rules.matches(kModule, false);
    const double scale = rules.scale(kModule);
    fuzz::require(std::isfinite(scale) && scale > 0);
    return config;
  });
  if (!config) return 0;
  fuzz::require(config->dropout >= 0 && config->dropout < 1);
  fuzz::require(!config->target_modules.empty() || !config->target_parameters.empty());

  const Json written = adapter_config_json(*config, "base", {kModule}, config->target_parameters);
  const Json json = Json::parse(written.dump(2), "written");
  const LoraConfig again = read_adapter_config(JsonView(json, "written"));
  fuzz::require(again.rank == config->rank && again.alpha == config->alpha &&
                again.dropout == config->dropout && again.use_rslora == config->use_rslora);
  fuzz::require(adapter_config_json(again, "base", {}).dump() ==
                adapter_config_json(again, "base", {"x"}).dump());  // "all-linear" is written out
  return 0;
}
