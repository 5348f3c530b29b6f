#include "convert/convert.h"

#include <limits>

#include "base/error.h"
#include "config/config.h"
#include "convert/converters.h"

namespace lorikeet::convert {
namespace {

constexpr std::string_view kResult = "the result";

// Without "the result:12: ": the result isn't printed.
std::string without_places(std::string text) {
  const std::string place = std::string(kResult) + ":";
  for (std::size_t at = 0; (at = text.find(place, at)) != std::string::npos;) {
    const std::size_t end = text.find_first_not_of("0123456789", at + place.size());
    if (end != std::string::npos && text.compare(end, 2, ": ") == 0) {
      text.erase(at, end + 2 - at);
    } else {
      at += place.size();
    }
  }
  return text;
}

// Throws where the other trainer's values, such as a rank of 0, give no config of ours.
void require_valid(const std::string& yaml, const std::string& name) {
  try {
    config::parse_settings(yaml, std::string(kResult));
  } catch (const Error& error) {
    const std::string prefix = "[config] ";
    const std::string problems = error.what();
    throw Error("[convert] " + name + ": its values aren't valid as settings here; correct them there: " +
                without_places(problems.substr(problems.starts_with(prefix) ? prefix.size() : 0)));
  }
}

}  // namespace

std::string hub_name(const std::string& repository, const std::string& revision) {
  return "hub:" + repository + (revision.empty() ? "" : "@" + revision);
}

std::string last_part(const std::string& component) { return component.substr(component.rfind('.') + 1); }

std::int64_t product_of(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (product > std::numeric_limits<std::int64_t>::max() / factor)
      return std::numeric_limits<std::int64_t>::max();
    product *= factor;
  }
  return product;
}

void set_step_limit(OwnConfig& out, const std::string& key, const std::string& what, std::int64_t steps) {
  out.set_integer("training.max_steps", steps);
  out.note(key + " only ends " + what +
           " early there; training.max_steps is reached through as many epochs as it takes here: take it out "
           "if all epochs together have fewer than " +
           std::to_string(steps) + " steps");
}

void note_plain_scales(OwnConfig& out, const std::string& key) {
  out.note("the scales of the base's blocks of 4 bits are held in fp32 there (" + key +
           "), quantised to 8 bits here (double quantisation)");
}

Converted convert_config(std::string_view yaml, const std::string& name, const ConvertOptions& options) {
  ForeignConfig in(yaml, name);
  OwnConfig out;
  std::string trainer;
  if (is_torchtune(in)) {
    trainer = "torchtune";
    convert_torchtune(in, out, options);
  } else if (is_litgpt(in)) {
    trainer = "litgpt";
    convert_litgpt(in, out);
  } else if (is_axolotl(in)) {
    trainer = "axolotl";
    convert_axolotl(in, out, options);
  } else {
    throw Error(
        "[convert] " + name +
        ": expected a torchtune LoRA recipe (model._component_, checkpointer), the arguments of litgpt's "
        "finetune_lora (checkpoint_dir, lora_r) or an axolotl config (base_model, datasets), got none of "
        "them");
  }
  in.finish();
  Converted result{out.yaml("Converted from a config of " + trainer + ".", in.comments()), out.notes()};
  require_valid(result.yaml, name);
  return result;
}

}  // namespace lorikeet::convert
