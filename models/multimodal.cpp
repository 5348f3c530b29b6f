#include "models/multimodal.h"

#include <string>

namespace lorikeet::models {

io::CheckpointNames llava_names() {
  return {.prefixes = {{"model.language_model.", "language_model.model."},
                       {"lm_head.", "language_model.lm_head."}},
          .other_parts = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                          "model.multi_modal_projector."}};
}

void require_one_tie(ConfigReader& file, ConfigReader& text) {
  const char* const key = "tie_word_embeddings";
  const bool tied = file.flag(key, true);
  if (text.flag(key, true) != tied) {
    text.fail(key, "contradicts the file's own tie_word_embeddings, which is " +
                       std::string(tied ? "true" : "false") + (file.has(key) ? "" : " where it is absent"));
  }
}

bool read_tie_of_file(const JsonView& file, ConfigReader& text, bool of_text) {
  const char* const key = "tie_word_embeddings";
  const bool tied = file.get_bool(key, false);
  if (text.has(key) && of_text != tied) {
    text.fail(key, "expected that of the whole file, which is " + std::string(tied ? "true" : "false") +
                       (file.has(key) ? "" : " where it is absent") + "; write the same in both places");
  }
  return tied;
}

}  // namespace lorikeet::models
