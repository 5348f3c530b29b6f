#pragma once

#include <string>
#include <string_view>

namespace lorikeet::config {

/// What a layer's backward pass computes again instead of having it kept (Chen et al. 2016,
/// arXiv:1604.06174).
enum class ActivationCheckpointing {
  kNone,  ///< norms and the gated product, which cost next to nothing
  kMlp,   ///< the MLP's gate and up projections as well
  kFull,  ///< the whole layer, from its input
};

/// What lies in the host's memory while the device doesn't use it.
struct Offload {
  bool activations = false;  ///< what layers keep for their backward
  bool weights = false;      ///< the frozen matrices

  bool any() const { return activations || weights; }
  friend bool operator==(const Offload&, const Offload&) = default;
};

/// How a step takes less of a device's memory and more of its time. Neither changes a number that is
/// computed.
struct MemorySaving {
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  Offload offload;

  friend bool operator==(const MemorySaving&, const MemorySaving&) = default;
};

/// The words of the config: "none", "mlp", "full"; "none", "activations", "weights", "both".
std::string_view name_of(ActivationCheckpointing grade);
std::string_view name_of(const Offload& offload);

/// The overrides that turn `from` into `to`: "training.activation_checkpointing=mlp
/// training.offload=weights";
/// "" where they are equal.
std::string overrides(const MemorySaving& from, const MemorySaving& to);

}  // namespace lorikeet::config
