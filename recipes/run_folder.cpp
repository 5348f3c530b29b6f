#include "recipes/run_folder.h"

#include <unistd.h>

#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "config/config.h"
#include "io/disk.h"
#include "io/remove_tree.h"
#include "recipes/step_traces.h"
#include "train/checkpoint.h"

namespace lorikeet::recipes {
namespace {

constexpr const char* kRunFile = "run.json";

// The member of a run.json whose run is being replaced.
constexpr const char* kGivenUp = "given_up";

// What a run writes at the top of its folder, beside run.json, the tokenizer's files and its folders.
constexpr std::array kOwnFiles{"config.yaml", "metrics.jsonl", "adapter_model.safetensors",
                               "adapter_config.json"};

// The settings that change numbers and differ between two runs.
std::string settings_difference(const std::string& older, const std::string& newer) {
  std::vector<std::string> lines;
  const auto old_settings = config::parse_settings(older, "the run there");
  const auto new_settings = config::parse_settings(newer, "this run");
  for (const auto& d : config::differences(old_settings, new_settings, config::FingerprintScope::kNumbers)) {
    lines.push_back(d.name + ": " + d.old_value + " there, " + d.new_value + " now");
  }
  return join(lines, "; ");
}

void require_no_others_files(const std::filesystem::path& folder) {
  std::error_code ignored;  // a folder that can't be read has no list; make_writable_folder says why
  if (std::filesystem::exists(folder / kRunFile, ignored)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) continue;  // the lock
    throw Error("[checkpoint.output_dir] '" + folder.string() + "' holds '" + escape_control(name) +
                "' but no run of this program; choose an empty or new folder");
  }
}

}  // namespace

RunFolder::RunFolder(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;
  if (!path_.has_filename()) path_ = path_.parent_path();  // "a/b/" is "a/b"
  for (auto folder = std::filesystem::absolute(path_).lexically_normal();
       folder != folder.root_path() && !std::filesystem::exists(folder, ignored);
       folder = folder.parent_path())
    made_.push_back(folder);
  require_no_others_files(path_);
  io::make_writable_folder(path_);
  lock_.emplace(path_);
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  if (std::filesystem::exists(path_ / kRunFile, ignored)) return;
  lock_->remove();
  for (const auto& folder : made_) {
    if (::rmdir(folder.c_str()) != 0) return;  // someone put something there
  }
}

RunFolder::Begin RunFolder::begin(const Identity& identity, bool resume, bool overwrite) const {
  io::remove_stale_folders(path_ / "checkpoints");
  const std::filesystem::path file = path_ / kRunFile;
  if (!std::filesystem::exists(file)) return Begin::kFresh;
  if (overwrite) return Begin::kReplace;
  const std::string hint =
      "; choose another checkpoint.output_dir, or checkpoint.overwrite=true to start anew there";
  const std::string where = "[checkpoint.output_dir] '" + path_.string() + "' ";
  const Json json = Json::parse(read_file(file), file.string());
  const JsonView run(json, file.string());
  if (run.get_bool(kGivenUp, false)) throw Error(where + "holds the rest of a run that was given up" + hint);
  const JsonView there = run.at("identity");
  const std::string difference = settings_difference(there.at("settings").as_string(), identity.settings);
  if (!difference.empty()) throw Error(where + "holds a run with other settings (" + difference + ")" + hint);
  const auto require_equal = [&](const char* key, const std::string& now, const char* what) {
    if (there.at(key).as_string() != now) throw Error(where + "holds a run of " + what + hint);
  };
  require_equal("data", identity.data, "other data");
  require_equal("model", identity.model, "another base checkpoint");
  require_equal("policy", identity.policy, "another precision policy");
  if (run.at("finished").as_bool()) return Begin::kFinished;
  if (!resume) throw Error(where + "holds an unfinished run, and checkpoint.resume is 'never'" + hint);
  return Begin::kResume;
}

std::string RunFolder::fact(const std::string& name) const {
  const std::filesystem::path file = path_ / kRunFile;
  if (!std::filesystem::exists(file)) return "";
  const Json json = Json::parse(read_file(file), file.string());
  const JsonView run(json, file.string());
  return run.has(name) ? std::to_string(run.at(name).as_int()) : "";
}

void RunFolder::write(const Identity& identity, bool finished, const Json& facts) const {
  Json json;
  json.set("finished", finished);
  json.set("identity", Json()
                           .set("settings", identity.settings)
                           .set("data", identity.data)
                           .set("model", identity.model)
                           .set("policy", identity.policy));
  for (const auto& [key, value] : facts.object()) json.set(key, value);
  write_file_atomic(path_ / kRunFile, json.dump(2) + "\n");
}

void RunFolder::give_up_run() const {
  write_file_atomic(path_ / kRunFile, Json().set(kGivenUp, true).dump(2) + "\n");
  io::remove_stale_folders(path_);
  train::CheckpointStore(path_, "", std::nullopt).remove_all();
  for (const char* name : {kBestFolder, kMergedFolder}) {
    if (io::has_own_marker(path_ / name)) io::remove_tree(path_, name, io::kMarkerFile);
  }
  for (const char* name : kOwnFiles) std::filesystem::remove(path_ / name);
  for (const char* name : kTokenizerFiles) std::filesystem::remove(path_ / name);
  StepTraces::remove_all(path_);
}

}  // namespace lorikeet::recipes
