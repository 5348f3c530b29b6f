#include "train/checkpoint.h"

#include <ATen/ATen.h>

#include <map>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "io/folders.h"
#include "io/manifest.h"
#include "io/safetensors.h"
#include "io/step_folder.h"
#include "peft/adapter_file.h"
#include "peft/tensor_bytes.h"

namespace lorikeet::train {
namespace {

constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "trainer_state.json";

// The view of a flat buffer that belongs to one adapter tensor.
at::Tensor view(const at::Tensor& flat, const peft::AdapterSegment& segment) {
  return flat.narrow(0, segment.offset, segment.size()).view(segment.shape);
}

// What has a step's name in `root`; nothing where there is no `root`.
std::map<std::int64_t, std::filesystem::path> step_folders(const std::filesystem::path& root) {
  std::map<std::int64_t, std::filesystem::path> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(root, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (const auto step = io::step_of_folder(entry->path().filename().string()))
      found.emplace(*step, entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(
        "[checkpoint] can't read the folder '" + escape_control(root.string()) + "': " + error.message(),
        ErrorKind::kEnvironment);
  return found;
}

}  // namespace

CheckpointStore::CheckpointStore(const std::filesystem::path& output_dir, std::string base_model,
                                 std::optional<std::int64_t> keep_last)
    : root_(output_dir / io::kCheckpointsFolder), base_model_(std::move(base_model)), keep_last_(keep_last) {}

std::filesystem::path CheckpointStore::folder(std::int64_t step) const {
  return root_ / io::step_folder_name(step);
}

void save_in_run(const std::filesystem::path& output_dir, const std::function<void()>& save) {
  const auto require_folder = [&] {
    if (std::filesystem::is_directory(output_dir)) return;
    throw Error("[checkpoint] the output folder '" + output_dir.string() +
                    "' is gone: it was deleted while the run was going on",
                ErrorKind::kRunFailed);
  };
  require_folder();
  try {
    save();
  } catch (const Error&) {
    require_folder();  // deleted in between, it is the cause
    throw;
  }
}

void CheckpointStore::save(const RunState& state, const peft::LoraAdapters& adapters,
                           const AdamW& optimizer) const {
  save_in_run(root_.parent_path(), [&] { write(state, adapters, optimizer); });
  remove_old();
}

void CheckpointStore::write(const RunState& state, const peft::LoraAdapters& adapters,
                            const AdamW& optimizer) const {
  io::AtomicFolder target(folder(state.step));
  peft::save_adapter(target.path(), adapters, base_model_);

  const peft::AdapterStore& store = adapters.store();
  peft::TensorBytes moments;
  for (std::size_t i = 0; i < store.size(); ++i) {
    const peft::AdapterSegment& segment = store.segment(i);
    if (segment.frozen) continue;
    moments.add("exp_avg." + segment.name, view(optimizer.exp_avg(), segment), segment.order);
    moments.add("exp_avg_sq." + segment.name, view(optimizer.exp_avg_sq(), segment), segment.order);
  }
  moments.add("updates", optimizer.updates());
  io::write_safetensors(target.path() / kOptimizer, moments.entries());
  write_file_atomic(target.path() / kState, state.json().dump(2) + "\n");
  io::write_manifest(target.path());
  target.commit();
}

void CheckpointStore::remove_old() const {
  if (!keep_last_) return;
  try {
    std::vector<std::int64_t> saved = steps();
    while (std::ssize(saved) > *keep_last_) {
      io::remove_own_folder(folder(saved.front()));
      saved.erase(saved.begin());
    }
  } catch (const Error& error) {  // the newest is there: a file in use on NFS, say, ends no run
    log_warning(std::string(error.what()) + "; an old checkpoint stays");
  }
}

std::vector<std::int64_t> CheckpointStore::steps() const {
  std::vector<std::int64_t> result;
  for (const auto& [step, path] : step_folders(root_)) {
    if (io::has_own_marker(path)) result.push_back(step);
  }
  return result;
}

std::vector<std::filesystem::path> CheckpointStore::unmarked() const {
  std::vector<std::filesystem::path> result;
  std::error_code ignored;
  for (const auto& [step, path] : step_folders(root_)) {
    if (!std::filesystem::is_symlink(path, ignored) && std::filesystem::exists(path / kState, ignored) &&
        !io::has_own_marker(path))
      result.push_back(path);
  }
  return result;
}

RunState CheckpointStore::load(std::int64_t step, peft::LoraAdapters& adapters, AdamW& optimizer) const {
  const std::filesystem::path from = folder(step);
  io::check_manifest(from);
  peft::load_adapter(from, adapters);

  const auto file = io::SafetensorsFile::open(from / kOptimizer);
  const auto read = [&](const std::string& name, const at::Tensor& target, const nn::RowOrder& order = {}) {
    const io::TensorView* tensor = file.find(name);
    if (tensor == nullptr) throw Error("[" + file.path().string() + "] tensor '" + name + "' is missing");
    peft::copy_into({tensor->name, tensor->dtype, tensor->shape}, tensor->bytes, target, file.path().string(),
                    order);
  };
  const peft::AdapterStore& store = adapters.store();
  for (std::size_t i = 0; i < store.size(); ++i) {
    const peft::AdapterSegment& segment = store.segment(i);
    if (segment.frozen) continue;
    read("exp_avg." + segment.name, view(optimizer.exp_avg(), segment), segment.order);
    read("exp_avg_sq." + segment.name, view(optimizer.exp_avg_sq(), segment), segment.order);
  }
  read("updates", optimizer.updates());

  const std::string where = (from / kState).string();
  const Json json = Json::parse(read_file(from / kState, 1U << 20), where);
  const JsonView view(json, where);
  RunState state = RunState::from_json(view);
  if (state.step != step) view.at("step").fail(std::to_string(step) + ", which the folder is named for");
  return state;
}

void CheckpointStore::remove_all() const {
  for (const std::int64_t step : steps()) io::remove_own_folder(folder(step));
}

}  // namespace lorikeet::train
