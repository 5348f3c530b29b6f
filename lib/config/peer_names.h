#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lorikeet::config {

/// A setting's name in other trainers (transformers and TRL, PEFT, torchtune, Axolotl, LLaMA-Factory,
/// LitGPT), without its section there.
struct PeerName {
  std::string_view theirs;
  std::string_view ours;  ///< the setting's full name here; "" where there is none
  std::string_view note;  ///< how the meaning differs, or why there is none; "" where it is the same
};

/// All of them, for tests.
std::span<const PeerName> peer_names();

/// " (here it is 'lora.rank')" with a note where the meaning differs, for a key that other trainers use: its
/// section, case, and '-' or '_' don't matter. Empty for any other.
std::optional<std::string> peer_hint(std::string_view name);

}  // namespace lorikeet::config
