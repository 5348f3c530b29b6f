#include "recipes/starting_values.h"

#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "io/folders.h"
#include "peft/adapter_file.h"
#include "peft/adapter_folder.h"
#include "recipes/adapter_base.h"
#include "recipes/adapter_template.h"
#include "recipes/adapter_tokens.h"
#include "recipes/best_adapter.h"

namespace lorikeet::recipes {
namespace {

// A checkpoint that can't be known as ours would be neither read now nor replaced when its step comes again.
void require_marked(const train::CheckpointStore& checkpoints) {
  const std::vector<std::filesystem::path> unmarked = checkpoints.unmarked();
  if (unmarked.empty()) return;
  throw Error(
      "[checkpoint] '" + unmarked.front().string() + "' lacks the file " + io::kMarkerFile +
      " that every checkpoint has: put it back (it is the same in all), or move the folder away to go "
      "on without it");
}

peft::LoraInit start_of(const std::string& init) {
  if (init == "kaiming") return peft::LoraInit::kKaiming;
  if (init == "gaussian") return peft::LoraInit::kGaussian;
  return init == "olora" ? peft::LoraInit::kOlora : peft::LoraInit::kPissa;
}

void take_first_rank_s(peft::LoraAdapters& adapters, RankGroup& group) {
  group.broadcast(adapters.store().all_values());
  adapters.store().refresh_compute();
}

}  // namespace

std::optional<train::RunState> load_latest_checkpoint(const train::CheckpointStore& checkpoints,
                                                      const std::filesystem::path& output_dir, bool keep_best,
                                                      peft::LoraAdapters& adapters, train::AdamW& optimizer) {
  require_marked(checkpoints);
  const std::vector<std::int64_t> saved = checkpoints.steps();
  if (saved.empty()) return std::nullopt;
  train::RunState state;
  try {
    state = checkpoints.load(saved.back(), adapters, optimizer);
  } catch (const Error& error) {
    throw Error(std::string(error.what()) + "; to go on from " +
                    (saved.size() > 1 ? "step " + std::to_string(saved[saved.size() - 2]) : "the beginning") +
                    " instead, remove '" + checkpoints.folder(saved.back()).string() + "'",
                error.kind());
  }
  if (state.best && keep_best) require_best(output_dir, state);
  checkpoints.remove_old();
  return state;
}

std::string start_fingerprint(const config::LoraSettings& settings, const peft::LoraAdapters& adapters) {
  if (!settings.starts_from_folder()) return "";
  const std::filesystem::path folder = settings.init;
  std::error_code ignored;
  for (const char* name : {peft::kAdapterConfig, peft::kAdapterTensors}) {
    if (!std::filesystem::exists(folder / name, ignored)) return "";
  }
  return versioned_fingerprint(1, peft::adapter_fingerprint(folder, adapters));
}

std::string initialize_adapters(const config::Settings& settings, const ModelSession& session,
                                const data::FileReport& rows, RankGroup& group) {
  peft::LoraAdapters& adapters = *session.adapters;
  const nn::WeightStore& base = session.model->store();
  if (!settings.lora.starts_from_folder()) {
    adapters.initialize(start_of(settings.lora.init), base, settings.lora.pissa_iterations());
    if (settings.lora.starts_from_base() || !adapters.tables().empty())
      take_first_rank_s(adapters, group);  // computed, so perhaps not bit for bit alike
    return "";
  }
  const std::filesystem::path from = settings.lora.init;
  const peft::LoraConfig found = peft::load_adapter_config(from);
  peft::require_same_settings(adapters.config(), found, from.string());
  peft::require_same_scales(adapters, found, from.string());
  require_same_tokens(from, session);
  if (group.first()) {
    warn_if_other_base(settings.model.path, from, session);
    if (const auto warning = other_start_template(settings, rows.rows, *session.tokenizer))
      log_warning(*warning);
  }
  peft::require_same_base(from, adapters, base);
  peft::load_adapter(from, adapters);
  take_first_rank_s(adapters, group);  // another machine's folder may hold another adapter
  log_info("adapter values from " + from.string());
  return start_fingerprint(settings.lora, adapters);
}

}  // namespace lorikeet::recipes
