#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "models/sizes.h"

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

// 0 also where the key is absent.
double zero_or_positive(const JsonView& object, const char* key) {
  const auto value = object.maybe(key);
  return !value || value->as_number() == 0 ? 0 : positive(*value);
}

// What changes angles must have a meaning for the type that is named.
void require_known(const JsonView& object, const RopeKeys& keys, const Names& own) {
  Names known{"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  if (keys.multimodal) known.insert(known.end(), {"mrope_section", "mrope_interleaved"});
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

constexpr const char* kOriginalLength = "original_max_position_embeddings";

// Whether the whole file's original length counts. As transformers has it, settings by layer type take no
// notice of it.
bool has_whole_length(const JsonView& config, const RopeKeys& keys) {
  return keys.layer_type == nullptr && config.has(kOriginalLength);
}

// Phi-3's files give the original length beside the object, those of transformers 5 in both places. Without
// the one beside it transformers overwrites the object's with its configuration class's default.
double original_length(const JsonView& config, const JsonView& object) {
  if (!config.has(kOriginalLength) && object.has(kOriginalLength)) {
    throw Error("[" + object.where() + "." + kOriginalLength +
                "] expected this number at the top level of the file too, got it here alone, where "
                "transformers takes 4096 instead; write it there");
  }
  const double length = positive(config, kOriginalLength);
  if (object.has(kOriginalLength) && positive(object, kOriginalLength) != length) {
    throw Error("[" + object.where() + "." + kOriginalLength + "] differs from that of the whole file, " +
                format_number("%g", length) + "; remove the wrong one");
  }
  return length;
}

// LongRoPE (Ding et al. 2024, arXiv:2402.13753), as transformers computes it.
void read_longrope(const JsonView& config, const JsonView& object, const RopeKeys& keys,
                   nn::RotarySpec* spec) {
  require_known(
      object, keys,
      {"short_factor", "long_factor", "factor", "attention_factor", "original_max_position_embeddings"});
  spec->scaling = Scaling::kLongrope;
  spec->short_factor = factors(object, "short_factor", spec->rotary_dim / 2);
  spec->long_factor = factors(object, "long_factor", spec->rotary_dim / 2);
  spec->original_max_position = keys.longrope_length_inside && !config.has(kOriginalLength)
                                    ? positive(object, kOriginalLength)
                                    : original_length(config, object);
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

// What YaRN multiplies cosines and sines by where the file doesn't say.
double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// YaRN (Peng et al. 2023, arXiv:2309.00071), as transformers computes it.
void read_yarn(const JsonView& config, const JsonView& object, const RopeKeys& keys, nn::RotarySpec* spec) {
  Names own{"factor",    "original_max_position_embeddings",
            "beta_fast", "beta_slow",
            "mscale",    "mscale_all_dim",
            "truncate",  "attention_factor"};
  // Ministral 3's files repeat the whole file's number here.
  if (keys.query_scaling) own.insert(own.end(), {"llama_4_scaling_beta", "max_position_embeddings"});
  require_known(object, keys, own);
  const auto number_or = [&](const char* key, double fallback) {
    return object.has(key) ? positive(object, key) : fallback;
  };
  spec->scaling = Scaling::kYarn;
  if (spec->theta <= 1)
    throw Error("[" + object.where() + "] yarn needs a rotary base above 1, got " +
                format_number("%g", spec->theta));
  spec->factor = positive(object, "factor");
  if (spec->factor < 1) throw Error("[" + object.where() + ".factor] expected at least 1");
  if (has_whole_length(config, keys)) {
    spec->original_max_position = original_length(config, object);
  } else {
    spec->original_max_position = object.has(kOriginalLength) ? positive(object, kOriginalLength)
                                                              : positive(config, "max_position_embeddings");
  }
  spec->beta_fast = number_or("beta_fast", 32);
  spec->beta_slow = number_or("beta_slow", 1);
  if (spec->beta_fast < spec->beta_slow)
    throw Error("[" + object.where() + "] expected beta_fast to be at least beta_slow");
  if (object.has("truncate")) spec->truncate = object.at("truncate").as_bool();
  // Both or none: one alone, or a 0 (Devstral 2), has no effect in transformers.
  const double mscale = zero_or_positive(object, "mscale");
  const double all_dim = zero_or_positive(object, "mscale_all_dim");
  const double plain = mscale > 0 && all_dim > 0 ? yarn_attention_factor(spec->factor, mscale) /
                                                       yarn_attention_factor(spec->factor, all_dim)
                                                 : yarn_attention_factor(spec->factor, 1);
  spec->attention_factor = number_or("attention_factor", plain);
  if (!keys.query_scaling) return;
  constexpr const char* kBeta = "llama_4_scaling_beta";
  if (!object.has(kBeta))
    throw Error("[" + object.where() + "] '" + kBeta + "' is missing; expected a number, 0 for none");
  spec->query_beta = zero_or_positive(object, kBeta);
}

// The pairs of dimensions that time, height and width of an image rotate (Qwen2-VL, arXiv:2409.12191). All of
// them have one position in text.
void check_sections(const JsonView& object, std::int64_t rotary_dim) {
  object.get_bool("mrope_interleaved", false);  // throws where it is no boolean
  if (!object.has("mrope_section")) return;
  const JsonView sections = object.at("mrope_section");
  std::int64_t pairs = 0;
  for (const JsonView& section : sections.items()) {
    if (section.as_int() < 0 || section.as_int() > kLargestWidth) section.fail("a number of pairs");
    pairs += section.as_int();
  }
  if (pairs != rotary_dim / 2) {
    throw Error("[" + sections.where() +
                "] expected sections that add up to half of the rotated dimensions, " +
                std::to_string(rotary_dim / 2) + ", got " + std::to_string(pairs));
  }
}

std::string rope_type(const JsonView& scaling) {
  return scaling.get_string("rope_type", scaling.get_string("type", "default"));
}

bool is_proportional(const std::optional<JsonView>& parameters, const RopeKeys& keys) {
  return keys.proportional && parameters && rope_type(*parameters) == "proportional";
}

// Gemma 4's: a part of all pairs is rotated, by the frequencies of whole heads.
void read_proportional(const JsonView& object, const RopeKeys& keys, nn::RotarySpec* spec) {
  require_known(object, keys, {"factor"});
  const char* const part = "partial_rotary_factor";
  const double rotated = object.has(part) ? positive(object, part) : 1;
  spec->scaling = Scaling::kProportional;
  spec->factor = object.has("factor") ? positive(object, "factor") : 1;
  spec->rotated_pairs = static_cast<std::int64_t>(rotated * static_cast<double>(spec->head_dim) / 2);
  if (rotated > 1 || spec->rotated_pairs < 1) {
    throw Error("[" + object.where() + "." + part +
                "] expected a part of at most 1 that leaves a pair of a " + "head_dim of " +
                std::to_string(spec->head_dim) + ", got " + format_number("%g", rotated));
  }
}

// The type's own numbers, from `rope_parameters` or `rope_scaling`.
void read_scaling(const JsonView& config, const JsonView& scaling, const RopeKeys& keys,
                  nn::RotarySpec* spec) {
  std::string type = rope_type(scaling);
  if (keys.multimodal) {
    check_sections(scaling, spec->rotary_dim);
    if (type == "mrope") type = "default";
  }
  if (type == "default") {
    require_known(scaling, keys, {});
  } else if (type == "linear") {
    require_known(scaling, keys, {"factor"});
    spec->scaling = Scaling::kLinear;
    spec->factor = positive(scaling, "factor");
  } else if (type == "llama3") {
    require_known(scaling, keys,
                  {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
    spec->scaling = Scaling::kLlama3;
    spec->factor = positive(scaling, "factor");
    spec->low_freq_factor = positive(scaling, "low_freq_factor");
    spec->high_freq_factor = positive(scaling, "high_freq_factor");
    spec->original_max_position = has_whole_length(config, keys) ? original_length(config, scaling)
                                                                 : positive(scaling, kOriginalLength);
    if (spec->high_freq_factor <= spec->low_freq_factor) {
      throw Error("[" + scaling.where() + "] expected high_freq_factor above low_freq_factor");
    }
  } else if (keys.proportional && type == "proportional") {
    read_proportional(scaling, keys, spec);
  } else if (!keys.longrope_instead_of_yarn && type == "yarn") {
    read_yarn(config, scaling, keys, spec);
  } else if (keys.longrope_instead_of_yarn && (type == "longrope" || type == "su")) {
    read_longrope(config, scaling, keys, spec);
  } else {
    throw Error("[" + scaling.where() + "] rotary type '" + escape_control(type) +
                "' is not supported; default, linear, llama3" + (keys.proportional ? ", proportional" : "") +
                " and " + (keys.longrope_instead_of_yarn ? "longrope are" : "yarn are"));
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
  auto parameters = config.maybe("rope_parameters");
  if (!parameters || keys.layer_type == nullptr) return parameters;
  for (const auto& [key, value] : parameters->members()) {
    if (!value.json().is_object() && !value.json().is_null())
      throw Error("[" + escape_control(value.where()) + "] expected the settings of a layer type, such as " +
                  keys.layer_type + "; those of all layers have no meaning here");
  }
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
  const double part = is_proportional(parameters, keys)
                          ? 1
                          : agreed(config, keys.partial, keys.also_partial, objects, "partial_rotary_factor")
                                .value_or(keys.absent_partial);
  nn::RotarySpec spec{.head_dim = head_dim, .rotary_dim = rotated(reader, head_dim, part, keys)};
  const auto theta = agreed(config, keys.theta, keys.also_theta, objects, "rope_theta");
  if (theta) {
    spec.theta = *theta;
  } else if (keys.absent_theta > 0) {
    spec.theta = keys.absent_theta;
  } else if (parameters) {
    parameters->at("rope_theta");  // throws, naming it
  } else if (config.json().find("rope_scaling") == nullptr) {
    // Before transformers wrote rope_theta it was always 10000, and rope_scaling stood alone.
    throw Error("[" + config.where() + "] has neither 'rope_parameters' nor '" + keys.theta +
                "'/'rope_scaling', so the rotary base is unknown; for the first Llama models add "
                "\"rope_theta\": 10000.0");
  }
  nn::RotarySpec other = spec;
  if (parameters) read_scaling(config, *parameters, keys, &spec);
  if (!old_scaling) return spec;
  read_scaling(config, *old_scaling, keys, &other);
  if (parameters && other != spec) {
    throw Error("[" + config.where() + "] 'rope_scaling' and 'rope_parameters' differ; remove the wrong one");
  }
  return other;
}

double yarn_score_factor(const ConfigReader& config, const nn::RotarySpec& rotary) {
  if (rotary.scaling != Scaling::kYarn) return 1;
  std::optional<double> found;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto object = config.view().maybe(key);
    if (!object) continue;
    const double all_dim = zero_or_positive(*object, "mscale_all_dim");
    if (found && *found != all_dim) {
      throw Error("[" + config.view().where() +
                  "] 'rope_scaling' and 'rope_parameters' differ in mscale_all_dim; remove the wrong one");
    }
    found = all_dim;
  }
  const double factor = found.value_or(0) > 0 ? yarn_attention_factor(rotary.factor, *found) : 1;
  return factor * factor;
}

}  // namespace lorikeet::models
