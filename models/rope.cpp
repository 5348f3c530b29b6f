#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::models {
namespace {

using Scaling = nn::RotarySpec::Scaling;
using Names = std::vector<std::string>;

double positive(const JsonView& value) {
  const double number = value.as_number();
  // Far outside of what any model has, and still finite as fp32, also divided by each other.
  if (!(number >= 1e-6 && number <= 1e12))
    throw Error("[" + value.where() + "] expected a number from 1e-6 to 1e12");
  return number;
}

double positive(const JsonView& object, const char* key) { return positive(object.at(key)); }

// What changes angles must have a meaning for the type that is named.
void require_known(const JsonView& object, const Names& own) {
  Names known{"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  known.insert(known.end(), own.begin(), own.end());
  for (const auto& [key, value] : object.members()) {
    if (value.json().is_null() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw Error("[" + escape_control(value.where()) + "] is no setting of this rotary type, which has " +
                join(known, ", "));
  }
}

std::vector<double> factors(const JsonView& object, const char* key, std::int64_t count) {
  const JsonView list = object.at(key);
  std::vector<double> values;
  for (const JsonView& item : list.items()) values.push_back(positive(item));
  if (std::ssize(values) != count) {
    throw Error("[" + list.where() + "] expected " + std::to_string(count) +
                " numbers, one for each pair of rotated dimensions, got " + std::to_string(values.size()));
  }
  return values;
}

// Phi-3's files give the original length beside the object, those of transformers 5 in both places. Without
// the one beside it transformers overwrites the object's with its configuration class's default.
double original_length(const JsonView& config, const JsonView& object) {
  constexpr const char* kKey = "original_max_position_embeddings";
  if (!config.has(kKey) && object.has(kKey)) {
    throw Error("[" + object.where() + "." + kKey +
                "] expected this number at the top level of the file too, got it here alone, where "
                "transformers takes 4096 instead; write it there");
  }
  const double length = positive(config, kKey);
  if (object.has(kKey) && positive(object, kKey) != length) {
    throw Error("[" + object.where() + "." + kKey + "] differs from that of the whole file, " +
                format_number("%g", length) + "; remove the wrong one");
  }
  return length;
}

// LongRoPE (Ding et al. 2024, arXiv:2402.13753), as transformers computes it.
void read_longrope(const JsonView& config, const JsonView& object, nn::RotarySpec* spec) {
  require_known(object, {"short_factor", "long_factor", "factor", "attention_factor",
                         "original_max_position_embeddings"});
  spec->scaling = Scaling::kLongrope;
  spec->short_factor = factors(object, "short_factor", spec->rotary_dim / 2);
  spec->long_factor = factors(object, "long_factor", spec->rotary_dim / 2);
  spec->original_max_position = original_length(config, object);
  if (spec->original_max_position <= 1)
    throw Error("[" + object.where() + "] expected original_max_position_embeddings above 1");
  const double longer = object.has("factor")
                            ? positive(object, "factor")
                            : positive(config, "max_position_embeddings") / spec->original_max_position;
  spec->attention_factor = object.has("attention_factor") ? positive(object, "attention_factor")
                           : longer <= 1
                               ? 1
                               : std::sqrt(1 + std::log(longer) / std::log(spec->original_max_position));
}

// The type's own numbers, from `rope_parameters` or `rope_scaling`.
void read_scaling(const JsonView& config, const JsonView& scaling, bool longrope_allowed,
                  nn::RotarySpec* spec) {
  const std::string type = scaling.get_string("rope_type", scaling.get_string("type", "default"));
  if (type == "default") {
    require_known(scaling, {});
  } else if (type == "linear") {
    require_known(scaling, {"factor"});
    spec->scaling = Scaling::kLinear;
    spec->factor = positive(scaling, "factor");
  } else if (type == "llama3") {
    require_known(scaling,
                  {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
    spec->scaling = Scaling::kLlama3;
    spec->factor = positive(scaling, "factor");
    spec->low_freq_factor = positive(scaling, "low_freq_factor");
    spec->high_freq_factor = positive(scaling, "high_freq_factor");
    spec->original_max_position = positive(scaling, "original_max_position_embeddings");
    if (spec->high_freq_factor <= spec->low_freq_factor) {
      throw Error("[" + scaling.where() + "] expected high_freq_factor above low_freq_factor");
    }
  } else if (longrope_allowed && (type == "longrope" || type == "su")) {
    read_longrope(config, scaling, spec);
  } else {
    throw Error("[" + scaling.where() + "] rotary type '" + escape_control(type) +
                "' is not supported; default, linear" +
                (longrope_allowed ? ", llama3 and longrope are" : " and llama3 are"));
  }
}

// The objects that may hold numbers of the table: `rope_parameters` and `rope_scaling`.
struct RopeObjects {
  std::optional<JsonView> parameters, old_scaling;
};

// A number that may stand at top level, under one name or two (`also`, or nullptr), in either object as
// `inner`, or in several places and then equal.
std::optional<double> agreed(const JsonView& config, const char* key, const char* also,
                             const RopeObjects& objects, const char* inner) {
  std::string found_as;
  std::optional<double> found;
  const auto look = [&](const std::string& name, const std::optional<JsonView>& value) {
    if (!value) return;
    if (found && *found != value->as_number())
      throw Error("[" + config.where() + "] '" + found_as + "' and '" + name +
                  "' differ; remove the wrong one");
    found_as = name;
    found = positive(*value);
  };
  look(key, config.maybe(key));
  if (also != nullptr) look(also, config.maybe(also));
  if (objects.parameters) look(std::string("rope_parameters.") + inner, objects.parameters->maybe(inner));
  if (objects.old_scaling) look(std::string("rope_scaling.") + inner, objects.old_scaling->maybe(inner));
  return found;
}

std::int64_t rotated(const ConfigReader& config, std::int64_t head_dim, double part, const RopeKeys& keys) {
  if (part == 1) return head_dim;
  if (!keys.partial_allowed) config.fail(keys.partial, "only 1 is supported");
  if (part > 1) config.fail(keys.partial, "expected at most 1, got " + format_number("%g", part));
  const auto dims = static_cast<std::int64_t>(static_cast<double>(head_dim) * part);
  if (dims < 2 || dims % 2 != 0) {
    config.fail(keys.partial, "of a head_dim of " + std::to_string(head_dim) + " makes " +
                                  std::to_string(dims) + " rotated dimensions; expected an even number");
  }
  return dims;
}

// `rope_parameters`, or the member of it that is the table's.
std::optional<JsonView> parameters_of(const JsonView& config, const RopeKeys& keys) {
  const auto parameters = config.maybe("rope_parameters");
  if (!parameters || keys.layer_type == nullptr) return parameters;
  return parameters->at(keys.layer_type);
}

}  // namespace

nn::RotarySpec read_rope(ConfigReader& reader, std::int64_t head_dim, const RopeKeys& keys) {
  reader.claim({keys.theta, keys.partial, "rope_scaling", "rope_parameters"});
  if (keys.also_theta != nullptr) reader.claim({keys.also_theta});
  if (keys.also_partial != nullptr) reader.claim({keys.also_partial});
  const JsonView& config = reader.view();
  const RopeObjects objects{.parameters = parameters_of(config, keys),
                            .old_scaling = keys.scaled ? config.maybe("rope_scaling") : std::nullopt};
  const auto& [parameters, old_scaling] = objects;
  const double part = agreed(config, keys.partial, keys.also_partial, objects, "partial_rotary_factor")
                          .value_or(keys.absent_partial);
  nn::RotarySpec spec{.head_dim = head_dim, .rotary_dim = rotated(reader, head_dim, part, keys)};
  const auto theta = agreed(config, keys.theta, keys.also_theta, objects, "rope_theta");
  if (theta) {
    spec.theta = *theta;
  } else if (keys.absent_theta > 0) {
    spec.theta = keys.absent_theta;
  } else if (parameters) {
    parameters->at("rope_theta");  // throws, naming it
  } else if (config.json().find("rope_scaling") == nullptr && config.json().find(keys.theta) == nullptr) {
    // Before transformers wrote rope_theta it was always 10000, and rope_scaling stood alone.
    throw Error("[" + config.where() + "] has neither 'rope_parameters' nor '" + keys.theta +
                "'/'rope_scaling', so the rotary base is unknown; for the first Llama models add "
                "\"rope_theta\": 10000.0");
  }
  nn::RotarySpec other = spec;
  if (parameters) read_scaling(config, *parameters, keys.longrope_allowed, &spec);
  if (!old_scaling) return spec;
  read_scaling(config, *old_scaling, keys.longrope_allowed, &other);
  if (parameters && other != spec) {
    throw Error("[" + config.where() + "] 'rope_scaling' and 'rope_parameters' differ; remove the wrong one");
  }
  return other;
}

}  // namespace lorikeet::models
