#include "recipes/best_adapter.h"

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "io/folders.h"
#include "io/manifest.h"
#include "peft/adapter_file.h"
#include "train/checkpoint.h"

namespace lorikeet::recipes {
namespace {

constexpr const char* kBestFile = "best.json";

using Best = train::RunState::Best;

// Which evaluation's adapter the folder holds, once all of it was found undamaged. Version 0.1 didn't record
// the step: then that of `state` is believed.
Best checked_best(const std::filesystem::path& folder, const train::RunState& state) {
  if (!io::has_own_marker(folder))
    throw Error("[checkpoint] the best adapter, of step " + std::to_string(state.best->step) +
                ", is not in '" + folder.string() + "'");
  io::check_manifest(folder);
  if (!std::filesystem::exists(folder / kBestFile)) return *state.best;
  const std::string where = (folder / kBestFile).string();
  const Json json = Json::parse(read_file(folder / kBestFile, 1U << 20), where);
  const JsonView best(json, where);
  return {best.at("step").as_int(), best.at("val_loss").as_number()};
}

// A run that was killed behind a validation comes to it again, not always to the same bits (another grouping
// of rows, a GPU's sums). So the folder may hold an adapter that is better than what the run knows of.
bool serves(const Best& there, const train::RunState& state) {
  return there.step == state.best->step || there.val_loss <= state.best->val_loss;
}

[[noreturn]] void fail_other_step(const std::filesystem::path& folder, std::int64_t step,
                                  const train::RunState& state, ErrorKind kind) {
  throw Error("[checkpoint] '" + folder.string() + "' holds the adapter of step " + std::to_string(step) +
                  ", but the best one of this run is of step " + std::to_string(state.best->step),
              kind);
}

}  // namespace

void save_best(const std::filesystem::path& output_dir, const peft::LoraAdapters& adapters,
               const std::string& base_model, const train::RunState& state) {
  train::save_in_run(output_dir, [&] {
    io::AtomicFolder folder(output_dir / kBestFolder);
    peft::save_adapter(folder.path(), adapters, base_model);
    const Json best = Json().set("step", state.best->step).set("val_loss", state.best->val_loss);
    write_file_atomic(folder.path() / kBestFile, best.dump(2) + "\n");
    io::write_manifest(folder.path());
    folder.commit();
  });
}

void require_best(const std::filesystem::path& output_dir, const train::RunState& state) {
  const std::filesystem::path folder = output_dir / kBestFolder;
  try {
    const Best there = checked_best(folder, state);
    if (!serves(there, state) && there.step <= state.step)
      fail_other_step(folder, there.step, state, ErrorKind::kUsage);
  } catch (const Error& error) {
    throw Error(std::string(error.what()) +
                    "; the run can't go on without it: put a copy of the folder back, or begin anew with "
                    "checkpoint.overwrite=true checkpoint.resume=never",
                error.kind());
  }
}

void load_best(const std::filesystem::path& output_dir, train::RunState& state,
               peft::LoraAdapters& adapters) {
  const std::filesystem::path folder = output_dir / kBestFolder;
  const Best there = checked_best(folder, state);
  if (!serves(there, state)) fail_other_step(folder, there.step, state, ErrorKind::kRunFailed);
  peft::load_adapter(folder, adapters);
  state.best = there;
}

}  // namespace lorikeet::recipes
