#include "models/rope.h"

#include <optional>
#include <string>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::models {
namespace {

double positive(const JsonView& object, const char* key) {
  const JsonView value = object.at(key);
  const double number = value.as_number();
  // Far outside of what any model has, and still finite as fp32, also divided by each other.
  if (!(number >= 1e-6 && number <= 1e12))
    throw Error("[" + value.where() + "] expected a number from 1e-6 to 1e12");
  return number;
}

// The type's own numbers, from `rope_parameters` or `rope_scaling`.
void read_scaling(const JsonView& scaling, nn::RotarySpec* spec) {
  const std::string type = scaling.get_string("rope_type", scaling.get_string("type", "default"));
  if (type == "default") return;
  if (type == "linear") {
    spec->scaling = nn::RotarySpec::Scaling::kLinear;
    spec->factor = positive(scaling, "factor");
  } else if (type == "llama3") {
    spec->scaling = nn::RotarySpec::Scaling::kLlama3;
    spec->factor = positive(scaling, "factor");
    spec->low_freq_factor = positive(scaling, "low_freq_factor");
    spec->high_freq_factor = positive(scaling, "high_freq_factor");
    spec->original_max_position = positive(scaling, "original_max_position_embeddings");
    if (spec->high_freq_factor <= spec->low_freq_factor) {
      throw Error("[" + scaling.where() + "] expected high_freq_factor above low_freq_factor");
    }
  } else {
    throw Error("[" + scaling.where() + "] rotary type '" + escape_control(type) +
                "' is not supported; default, linear and llama3 are");
  }
}

// Rotating only a part of each head is another model's angles, not a Llama's.
void require_whole_rotation(const JsonView& object) {
  const auto factor = object.maybe("partial_rotary_factor");
  if (factor && factor->as_number() != 1) throw Error("[" + factor->where() + "] only 1 is supported");
}

}  // namespace

nn::RotarySpec read_rope(const JsonView& config, std::int64_t head_dim) {
  nn::RotarySpec spec{.head_dim = head_dim, .rotary_dim = head_dim};
  require_whole_rotation(config);
  const auto parameters = config.maybe("rope_parameters");
  const bool old_layout =
      config.json().find("rope_theta") != nullptr || config.json().find("rope_scaling") != nullptr;
  if (!parameters && !old_layout) {
    throw Error(
        "[" + config.where() +
        "] has neither 'rope_parameters' nor 'rope_theta'/'rope_scaling', so the rotary base is unknown; "
        "for the first Llama models add \"rope_theta\": 10000.0");
  }
  if (parameters) {
    require_whole_rotation(*parameters);
    spec.theta = positive(*parameters, "rope_theta");
    read_scaling(*parameters, &spec);
    if (config.has("rope_theta") && config.at("rope_theta").as_number() != spec.theta) {
      throw Error("[" + config.where() +
                  "] 'rope_theta' and 'rope_parameters.rope_theta' differ; remove the wrong one");
    }
    if (const auto scaling = config.maybe("rope_scaling")) {
      nn::RotarySpec other{.head_dim = head_dim, .rotary_dim = head_dim, .theta = spec.theta};
      read_scaling(*scaling, &other);
      if (other != spec) {
        throw Error("[" + config.where() +
                    "] 'rope_scaling' and 'rope_parameters' differ; remove the wrong one");
      }
    }
    return spec;
  }
  // Before transformers wrote rope_theta it was always 10000, and rope_scaling stood alone.
  if (config.has("rope_theta")) spec.theta = positive(config, "rope_theta");
  if (const auto scaling = config.maybe("rope_scaling")) read_scaling(*scaling, &spec);
  return spec;
}

}  // namespace lorikeet::models
