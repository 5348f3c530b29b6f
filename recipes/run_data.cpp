#include "recipes/run_data.h"

#include "base/log.h"
#include "recipes/settings_map.h"

namespace lorikeet::recipes {

data::LoadedData load_run_data(const config::Settings& settings, const ModelSession& session) {
  const nn::ModelShape& shape = session.model->shape();
  data::LoadedData data =
      data::load_data(data_options(settings, session.embedding_rows()), *session.tokenizer);
  if (settings.data.max_seq_len > shape.max_position) {
    log_warning("data.max_seq_len is " + std::to_string(settings.data.max_seq_len) +
                ", but the model was made for " + std::to_string(shape.max_position) +
                " positions (max_position_embeddings, scaled as config.json says), beyond which it predicts "
                "badly; the longest training example has " +
                std::to_string(data.train.longest()) + " tokens");
  }
  return data;
}

}  // namespace lorikeet::recipes
