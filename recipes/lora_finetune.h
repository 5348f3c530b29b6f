#pragma once

#include <string>

#include "config/settings.h"

namespace lorikeet::recipes {

/// Fine-tunes a checkpoint with LoRA as `settings` say and leaves a PEFT adapter in the output folder. Logs
/// to stderr. Returns when the run is finished (or was already). Throws Error otherwise: kInterrupted after a
/// signal, when a checkpoint was saved from which the same command goes on.
void lora_finetune(const config::Settings& settings);

}  // namespace lorikeet::recipes
