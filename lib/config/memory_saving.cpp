#include "config/memory_saving.h"

namespace lorikeet::config {

std::string_view name_of(ActivationCheckpointing grade) {
  switch (grade) {
    case ActivationCheckpointing::kNone: return "none";
    case ActivationCheckpointing::kMlp: return "mlp";
    case ActivationCheckpointing::kFull: return "full";
  }
  return "";
}

std::string_view name_of(const Offload& offload) {
  if (offload.activations && offload.weights) return "both";
  if (offload.activations) return "activations";
  return offload.weights ? "weights" : "none";
}

std::string overrides(const MemorySaving& from, const MemorySaving& to) {
  std::string text;
  if (from.checkpointing != to.checkpointing)
    text.append("training.activation_checkpointing=").append(name_of(to.checkpointing));
  if (from.offload != to.offload)
    text.append(text.empty() ? "" : " ").append("training.offload=").append(name_of(to.offload));
  return text;
}

}  // namespace lorikeet::config
