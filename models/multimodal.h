#pragma once

#include "base/json.h"
#include "io/checkpoint_names.h"
#include "models/config_reader.h"

namespace lorikeet::models {

/// What checkpoints call the parts of a model that holds a vision tower beside its language model, in LLaVA's
/// layout. The language model's own names are those of transformers' class,
/// "model.language_model.layers.0..." and "lm_head"; checkpoints have them, or
/// "language_model.model.layers.0..." as they were published. The tower and the projector are left alone.
io::CheckpointNames llava_names();

/// Checks that `tie_word_embeddings` of the whole file and of its `text_config` are the same, true where they
/// are absent. Throws Error naming the key.
void require_one_tie(ConfigReader& file, ConfigReader& text);

/// The whole file's `tie_word_embeddings`, where absent means false and `text_config`, which `text` reads,
/// has the same or none: `of_text` is what the latter says. Throws Error naming the key where they differ.
bool read_tie_of_file(const JsonView& file, ConfigReader& text, bool of_text);

}  // namespace lorikeet::models
