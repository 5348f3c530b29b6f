#include "convert/convert.h"

#include "base/error.h"
#include "convert/converters.h"

namespace lorikeet::convert {

std::string hub_name(const std::string& repository, const std::string& revision) {
  return "hub:" + repository + (revision.empty() ? "" : "@" + revision);
}

std::string last_part(const std::string& component) { return component.substr(component.rfind('.') + 1); }

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
  return {out.yaml("Converted from a config of " + trainer + ".", in.comments()), out.notes()};
}

}  // namespace lorikeet::convert
