#pragma once

#include "io/checkpoint_names.h"

namespace lorikeet::models {

/// What checkpoints call the parts of a model that holds a vision tower beside its language model, in LLaVA's
/// layout. The language model's own names are those of transformers' class,
/// "model.language_model.layers.0..." and "lm_head"; checkpoints have them, or
/// "language_model.model.layers.0..." as they were published. The tower and the projector are left alone.
io::CheckpointNames llava_names();

}  // namespace lorikeet::models
