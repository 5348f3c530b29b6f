#include "recipes/plan_inputs.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strings.h"
#include "data/source_files.h"
#include "io/shard_index.h"
#include "recipes/run_data.h"
#include "recipes/settings_map.h"

namespace lorikeet::recipes {
namespace {

constexpr std::size_t kMostConfigBytes = 16U << 20;
constexpr std::string_view kTrainPath = "data.train.path";

bool has_weights(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / io::kWeightsFile) ||
         std::filesystem::exists(folder / io::kShardIndexFile);
}

bool is_given(const PlanRequest& request, std::string_view name) {
  return std::any_of(request.overrides.begin(), request.overrides.end(),
                     [&](const std::string& text) { return trim(text.substr(0, text.find('='))) == name; });
}

// The rows of one step, all of them as long as they may be.
data::TokenDataset longest_rows(const config::Settings& settings) {
  const std::int64_t length = settings.data.max_seq_len;
  const std::int64_t count = settings.batch.global.value_or(
      std::max<std::int64_t>(settings.batch.global_tokens.value_or(0) / length, 1));
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 27;  // a GiB of rows
  if (count > kMostTokens / length) {
    throw Error("[batch] expected a step of at most " + std::to_string(kMostTokens) +
                " tokens where there are no rows to count, got " + std::to_string(count) +
                " rows of data.max_seq_len tokens; lower batch.global or batch.global_tokens, or give "
                "data.train.path");
  }
  const std::vector<std::int32_t> row(static_cast<std::size_t>(length), 0);
  data::TokenRows rows;
  for (std::int64_t i = 0; i < count; ++i) rows.add(row, row, i, 0);
  return data::TokenDataset(std::move(rows));
}

}  // namespace

ModelSession planned_model(const PlanRequest& request, const precision::Policy& policy) {
  const config::Settings& settings = request.settings;
  const auto seed = static_cast<std::uint64_t>(settings.training.seed);
  peft::LoraConfig lora = lora_config(settings.lora);
  const text::NewTokens tokens = new_tokens(settings.model);
  if (request.published) {
    const std::string where = request.published->string();
    lora.trains_tables = !tokens.empty();
    return open_config(Json::parse(read_file(*request.published, kMostConfigBytes), where), where, policy,
                       device::Device{}, lora, seed);
  }
  const auto open = has_weights(settings.model.path) ? open_model : open_shapes;
  return open(settings.model.path, policy, device::Device{}, lora, seed, tokens);
}

PlannedRows planned_rows(const PlanRequest& request, const ModelSession& session) {
  const config::Settings& settings = request.settings;
  const std::string& path = settings.data.train.path;
  const auto& sources = settings.data.train.sources;
  const bool there = sources.empty() ? data::source_exists(path)
                                     : std::all_of(sources.begin(), sources.end(), [](const auto& source) {
                                         return data::source_exists(source.path);
                                       });
  // A path that was just typed and leads nowhere is a slip, not data that is still to come.
  if (session.tokenizer && (there || is_given(request, kTrainPath))) {
    const data::LoadedData data = load_run_data(settings, session);
    log_info(data.train_report.describe());
    return {data.train, ""};
  }
  if (!there && is_given(request, kTrainPath))
    throw Error("[data.train.path] there is no file '" + escape_control(path) + "'");
  const std::string reason = there ? "'" + path + "' can't be counted without the checkpoint's tokenizer"
                                   : "there is no '" + path + "'";
  return {longest_rows(settings),
          reason +
              ", so one step of rows of data.max_seq_len tokens, all trained on, stands for it: rows of that "
              "length need no more memory, shorter ones less; to plan with your own give data.train.path" +
              (session.tokenizer
                   ? ""
                   : " and, as model.path, a folder with the checkpoint's config.json and tokenizer")};
}

}  // namespace lorikeet::recipes
