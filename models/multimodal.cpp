#include "models/multimodal.h"

namespace lorikeet::models {

io::CheckpointNames llava_names() {
  return {.prefixes = {{"model.language_model.", "language_model.model."},
                       {"lm_head.", "language_model.lm_head."}},
          .other_parts = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                          "model.multi_modal_projector."}};
}

}  // namespace lorikeet::models
