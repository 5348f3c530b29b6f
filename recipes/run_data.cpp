#include "recipes/run_data.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "recipes/settings_map.h"

namespace lorikeet::recipes {
namespace {

// The end of an answer is learnt where the template, or the row's form, puts a token that ends generation.
void warn_where_nothing_ends(const config::Settings& settings, const ModelSession& session,
                             const data::TokenDataset& dataset, const data::FileReport& report) {
  // Of texts a chunk may have no end; tokens say themselves what they are.
  if (report.format.starts_with("text") || report.format.starts_with("tokens")) return;
  std::vector<std::int32_t> ends;
  try {
    ends = stop_ids(settings.model.path, session);
  } catch (const Error&) {  // a damaged generation_config.json is an error where it is used
    return;
  }
  constexpr std::size_t kMost = 1000;
  const std::size_t looked_at = std::min(dataset.size(), kMost);
  for (std::size_t i = 0; i < looked_at; ++i) {
    for (const std::int32_t label : dataset.labels(i)) {
      if (std::find(ends.begin(), ends.end(), label) != ends.end()) return;
    }
  }
  if (looked_at == 0) return;
  log_warning("[data] " + report.file + ": in none of " + std::to_string(looked_at) +
              " examples a token that ends generation is learnt, so that the model may never stop: the chat "
              "template has none behind its answers, or all are cut off; `lorikeet preview` shows them");
}

}  // namespace

data::LoadedData load_run_data(const config::Settings& settings, const ModelSession& session) {
  data::LoadedData data =
      data::load_data(data_options(settings, session.embedding_rows()), *session.tokenizer);
  warn_beyond_positions(settings, session, data.train.longest());
  if (data.train_report.sources.empty()) {
    warn_where_nothing_ends(settings, session, data.train, data.train_report);
  }
  return data;
}

void warn_beyond_positions(const config::Settings& settings, const ModelSession& session,
                           std::int64_t longest) {
  const std::int64_t positions = session.model->shape().max_position;
  if (settings.data.max_seq_len <= positions) return;
  log_warning("data.max_seq_len is " + std::to_string(settings.data.max_seq_len) +
              ", but the model was made for " + std::to_string(positions) +
              " positions (max_position_embeddings, scaled as config.json says), beyond which it predicts "
              "badly; the longest example has " +
              std::to_string(longest) + " tokens");
}

}  // namespace lorikeet::recipes
