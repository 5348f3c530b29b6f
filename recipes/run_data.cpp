#include "recipes/run_data.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/counted.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "recipes/settings_map.h"

namespace lorikeet::recipes {
namespace {

// A token as people know it: its text and its id.
std::string describe_token(const text::Tokenizer& tokenizer, std::int32_t id) {
  const bool has_text = static_cast<std::size_t>(id) < tokenizer.vocab_size();
  const std::string text =
      has_text ? tokenizer.decode(std::array{id}, /*skip_special=*/false) : std::string();
  return "'" + escape_control(text) + "' (" + std::to_string(id) + ")";
}

}  // namespace

std::optional<std::string> unending_answers(const config::Settings& settings, const ModelSession& session,
                                            const data::TokenDataset& dataset, data::Format format,
                                            const std::string& file) {
  // Of texts a chunk may have no end; tokens say themselves what they are.
  if (format == data::Format::kText || format == data::Format::kTokens) return std::nullopt;
  std::vector<std::int32_t> ends;
  try {
    ends = stop_ids(settings.model.path, session);
  } catch (const Error&) {  // a damaged generation_config.json is an error where it is used
    return std::nullopt;
  }
  constexpr std::size_t kMost = 1000;
  const std::size_t looked_at = std::min(dataset.size(), kMost);
  std::int32_t last = data::kNoLabel;  // of the first example that has labels
  for (std::size_t i = 0; i < looked_at; ++i) {
    std::int32_t of_example = data::kNoLabel;
    for (const std::int32_t label : dataset.labels(i)) {
      if (std::find(ends.begin(), ends.end(), label) != ends.end()) return std::nullopt;
      if (label != data::kNoLabel) of_example = label;
    }
    if (last == data::kNoLabel) last = of_example;
  }
  if (last == data::kNoLabel) return std::nullopt;
  std::vector<std::string> known;
  known.reserve(ends.size());
  for (const std::int32_t end : ends) known.push_back(describe_token(*session.tokenizer, end));
  return "[data] " + file + ": in no example (" + counted(looked_at, "example") +
         " looked at) a token that ends generation is learnt, so that the model may never stop: the first "
         "one's answer ends with " +
         describe_token(*session.tokenizer, last) + ", and generation with " +
         (known.empty() ? "none" : join(known, ", ")) + "; " +
         (session.tokenizer->is_special(last)
              ? "add the id that should end it to eos_token_id in the base's generation_config.json, choose "
                "another data.chat_template,"
              : "that is text and no control token, so choose a data.chat_template whose end of an answer is "
                "one to this tokenizer,") +
         " or a larger data.max_seq_len where answers are cut off (`lorikeet preview` shows them)";
}

data::LoadedData load_run_data(const config::Settings& settings, const ModelSession& session) {
  data::LoadedData data =
      data::load_data(data_options(settings, session.embedding_rows()), *session.tokenizer);
  if (const auto warning = beyond_positions(settings, session, data.train)) log_warning(*warning);
  const data::FileReport& report = data.train_report;
  if (!report.sources.empty()) return data;
  if (const auto warning = unending_answers(settings, session, data.train, report.rows, report.file))
    log_warning(*warning);
  return data;
}

std::optional<std::string> beyond_positions(const config::Settings& settings, const ModelSession& session,
                                            const data::TokenDataset& dataset) {
  const std::int64_t positions = session.model->shape().max_position;
  if (settings.data.max_seq_len <= positions) return std::nullopt;
  return "data.max_seq_len is " + std::to_string(settings.data.max_seq_len) +
         ", but the model was made for " + std::to_string(positions) +
         " positions (max_position_embeddings, scaled as config.json says), beyond which it predicts "
         "badly; the longest of " +
         counted(dataset.size(), "example") + " has " + counted(dataset.longest(), "token");
}

}  // namespace lorikeet::recipes
