#pragma once

#include <string>

#include "comm/placement.h"
#include "config/settings.h"

namespace lorikeet::recipes {

/// Fine-tunes a checkpoint with LoRA as `settings` say and leaves a PEFT adapter in the output folder. Logs
/// to stderr. `placement` says which of a run's processes this is; all of them call it with equal settings
/// and compute together what one would. Returns when the run is finished (or was already). Throws Error
/// otherwise: kInterrupted after a signal, once what can be kept is saved; the text says how to go on.
void lora_finetune(const config::Settings& settings, const comm::Placement& placement = {});

}  // namespace lorikeet::recipes
