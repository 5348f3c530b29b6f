#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "peft/adapter_contents.h"

namespace lorikeet::peft {

/// What a file of another trainer doesn't say of its adapter.
struct ForeignScale {
  double alpha = 0;
  /// litgpt: which of q, k and v have an adapter.
  bool query = true, key = false, value = true;
};

/// What the files beside `file` say: torchtune's adapter_config.json, litgpt's hyperparameters.yaml; nullopt
/// where there is none. Throws Error if it can't be read.
std::optional<ForeignScale> read_foreign_scale(const std::filesystem::path& file);

/// The LoRA adapter that torchtune (adapter_0.pt) or litgpt (lit_model.pth.lora) saved, as a PEFT adapter of
/// the checkpoint with `config` (config.json): modules by the checkpoint's names, rows in its order.
///
/// torchtune turns the rows of q and k of Llama, Mistral and Gemma as Meta's rotary embedding has them; they
/// are turned back. Where the checkpoint holds several modules as one (Phi-3), their As are stacked and their
/// Bs put in blocks, with the sum of their ranks: the same change of the weight. Throws Error for other
/// files, tensors without a counterpart, shapes that contradict config.json, and other families than those
/// that both know with these names (Llama, Mistral, Qwen 2 and 3, Gemma, Phi-3, OLMo 2).
AdapterContents read_foreign_adapter(const std::filesystem::path& file, const JsonView& config,
                                     const ForeignScale& scale);

}  // namespace lorikeet::peft
