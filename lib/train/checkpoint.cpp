#include "train/checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "io/folders.h"
#include "io/manifest.h"
#include "io/safetensors.h"
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

std::optional<std::int64_t> step_of(const std::filesystem::path& folder) {
  const std::string name = folder.filename().string();
  std::int64_t step = 0;
  if (!name.starts_with("step_")) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + 5, end, step);
  if (error != std::errc() || last != end) return std::nullopt;
  return step;
}

}  // namespace

CheckpointStore::CheckpointStore(const std::filesystem::path& output_dir, std::string base_model,
                                 std::optional<std::int64_t> keep_last)
    : root_(output_dir / "checkpoints"), base_model_(std::move(base_model)), keep_last_(keep_last) {}

std::filesystem::path CheckpointStore::folder(std::int64_t step) const {
  return root_ / ("step_" + std::to_string(step));
}

void CheckpointStore::save(const RunState& state, const peft::LoraAdapters& adapters,
                           const AdamW& optimizer) const {
  if (!std::filesystem::is_directory(root_.parent_path()))
    throw Error("[checkpoint] the output folder '" + root_.parent_path().string() +
                    "' is gone: it was deleted while the run was going on",
                ErrorKind::kRunFailed);
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
  try {
    remove_old();
  } catch (const Error& error) {  // what was to be saved is: a file in use on NFS, say, ends no run
    log_warning(std::string(error.what()) + "; an old checkpoint stays");
  }
}

void CheckpointStore::remove_old() const {
  if (!keep_last_) return;
  std::vector<std::int64_t> saved = steps();
  while (std::ssize(saved) > *keep_last_) {
    io::remove_own_folder(folder(saved.front()));
    saved.erase(saved.begin());
  }
}

std::vector<std::int64_t> CheckpointStore::steps() const {
  std::vector<std::int64_t> result;
  if (!std::filesystem::is_directory(root_)) return result;
  for (const auto& entry : std::filesystem::directory_iterator(root_)) {
    const auto step = step_of(entry.path());
    if (step && io::has_own_marker(entry.path())) result.push_back(*step);
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<std::filesystem::path> CheckpointStore::unmarked() const {
  std::vector<std::filesystem::path> result;
  if (!std::filesystem::is_directory(root_)) return result;
  for (const auto& entry : std::filesystem::directory_iterator(root_)) {
    if (step_of(entry.path()) && !entry.is_symlink() && std::filesystem::exists(entry.path() / kState) &&
        !io::has_own_marker(entry.path()))
      result.push_back(entry.path());
  }
  return result;
}

RunState CheckpointStore::load(std::int64_t step, peft::LoraAdapters& adapters, AdamW& optimizer) const {
  const std::filesystem::path from = folder(step);
  if (!io::check_manifest(from))
    log_warning("[checkpoint] '" + from.string() + "' has no " + io::kManifestFile +
                ", so damage can't be found; an older version wrote it");
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
