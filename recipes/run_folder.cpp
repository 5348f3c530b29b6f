#include "recipes/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "base/strings.h"
#include "config/config.h"
#include "io/disk.h"
#include "io/manifest.h"
#include "io/remove_tree.h"
#include "io/safetensors.h"
#include "io/step_folder.h"
#include "peft/adapter_file.h"
#include "peft/adapter_folder.h"
#include "recipes/base_record.h"
#include "recipes/best_adapter.h"
#include "recipes/interrupt.h"
#include "recipes/run_settings.h"
#include "recipes/step_traces.h"
#include "train/checkpoint.h"
#include "train/event_file.h"

namespace lorikeet::recipes {
namespace {

constexpr const char* kRunFile = "run.json";

// The member of a run.json whose run is being replaced.
constexpr const char* kGivenUp = "given_up";
// That of a finished run's result: sizes and SHA-256 of its files.
constexpr const char* kResultFiles = "result_files";
// Identity's of the start adapter.
constexpr const char* kInit = "init";

// What a run writes at the top of its folder, beside run.json, the tokenizer's files and its folders.
constexpr std::array kOwnFiles{"config.yaml", "metrics.jsonl", peft::kAdapterTensors, peft::kAdapterConfig};

constexpr const char* kHint =
    "; choose another checkpoint.output_dir, or checkpoint.overwrite=true to start anew there";

// Whether a run writes a file of this name at the top of its folder.
bool is_own_file(const std::string& name) {
  const auto is = [&](const char* own) { return name == own; };
  return name == kRunFile || std::any_of(kOwnFiles.begin(), kOwnFiles.end(), is) ||
         std::any_of(kTokenizerFiles.begin(), kTokenizerFiles.end(), is) || StepTraces::is_trace_name(name) ||
         train::EventFile::is_name(name);
}

// Throws Error unless it has what `write`, or `give_up_run`, writes.
void require_record(const JsonView& run) {
  if (run.get_bool(kGivenUp, false)) return;
  run.at("finished").as_bool();
  run.at("steps").as_int();
  for (const char* key : {"settings", "data", "model", "policy"}) run.at("identity").at(key).as_string();
}

void require_no_others_files(const std::filesystem::path& folder) {
  std::error_code ignored;  // a folder that can't be read has no list; make_writable_folder says why
  if (std::filesystem::exists(folder / kRunFile, ignored)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || io::is_stale_file_name(name, is_own_file))
      continue;  // the lock, a killed start
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
  InterruptExit::lock_is_ours(true);
}

RunFolder::~RunFolder() {
  InterruptExit::lock_is_ours(false);
  std::error_code ignored;
  if (std::filesystem::exists(path_ / kRunFile, ignored)) return;
  lock_->remove();
  for (const auto& folder : made_) {
    if (::rmdir(folder.c_str()) != 0) return;  // someone put something there
  }
}

bool RunFolder::nothing_to_lose() const {
  std::error_code ignored;
  const auto holds_bytes = [&](const char* name) {
    const auto size = std::filesystem::file_size(path_ / name, ignored);
    return !ignored && size > 0;
  };
  return !holds_bytes(peft::kAdapterTensors) && !holds_bytes("metrics.jsonl") &&
         !std::filesystem::exists(path_ / kBestFolder, ignored) &&
         std::filesystem::directory_iterator(path_ / io::kCheckpointsFolder, ignored) ==
             std::filesystem::directory_iterator();
}

// What of a finished run's result is gone, can't be read, or isn't what `run` recorded; "" for nothing.
std::string RunFolder::result_problem(const JsonView& run) const {
  try {
    peft::load_adapter_config(path_);
    io::SafetensorsFile::open(path_ / peft::kAdapterTensors);
    for (const char* name : {"config.yaml", "metrics.jsonl"}) {
      if (!std::filesystem::exists(path_ / name)) return std::string(name) + " isn't there";
    }
    // Earlier versions recorded none.
    if (const auto files = run.maybe(kResultFiles)) io::check_files(path_, *files);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

RunFolder::Begin RunFolder::begin(const Identity& identity, bool resume, bool overwrite) const {
  io::remove_stale_files(path_, is_own_file);
  io::recover_folders(path_);
  io::recover_folders(path_ / io::kCheckpointsFolder);
  const std::filesystem::path file = path_ / kRunFile;
  if (!std::filesystem::exists(file)) return Begin::kFresh;
  if (nothing_to_lose() || (overwrite && !resume)) return Begin::kReplace;
  try {
    return compare(read_record(file), identity, resume);
  } catch (const Error&) {
    if (overwrite) return Begin::kReplace;  // another run, or a record that can't be read
    throw;
  }
}

Json RunFolder::read_record(const std::filesystem::path& file) {
  try {
    Json json = Json::parse(read_file(file), file.string());
    require_record(JsonView(json, file.string()));
    return json;
  } catch (const Error& error) {
    throw Error(
        std::string(error.what()) +
        "; this file tells which run the folder holds, and was damaged: put a copy of it back to go on "
        "with its checkpoints" +
        kHint);
  }
}

RunFolder::Begin RunFolder::compare(const Json& record, const Identity& identity, bool resume) const {
  const JsonView run(record, (path_ / kRunFile).string());
  const std::string where = "[checkpoint.output_dir] '" + path_.string() + "' ";
  if (run.get_bool(kGivenUp, false)) throw Error(where + "holds the rest of a run that was given up" + kHint);
  const JsonView there = run.at("identity");
  RunSteps steps{.now = identity.steps,
                 .there_ended = run.at("finished").as_bool() && !run.has("early_stop")};
  if (const auto planned = there.maybe("steps")) {
    steps.there = planned->as_int();
  } else if (steps.there_ended) {  // at first it wasn't recorded
    steps.there = run.at("steps").as_int();
  }
  // Killed between its last step and its end, it has come to that end too.
  std::error_code ignored;
  if (steps.there &&
      std::filesystem::exists(path_ / io::kCheckpointsFolder / io::step_folder_name(*steps.there), ignored))
    steps.there_ended = true;
  // A start adapter that is gone, or that the run's version didn't record, can't be compared.
  const bool start_compared = !there.get_string(kInit, "").empty() && !identity.init.empty();
  const SettingsComparison settings =
      compare_run_settings(there.at("settings").as_string(), identity.settings, steps, start_compared);
  if (settings.verdict == SettingsVerdict::kOther)
    throw Error(where + "holds a run with other settings (" + settings.difference + ")" +
                (settings.advice.empty() ? kHint : "; " + settings.advice));
  const auto require_equal = [&](const char* key, const std::string& now, const char* what) {
    const auto both = comparable_fingerprints(there.at(key).as_string(), now);
    if (!both) {
      throw Error(
          where + "holds a run whose fingerprint '" + key +
          "' is of a version that this program doesn't know; finish it with the program that began it" +
          kHint);
    }
    if (both->first != both->second) throw Error(where + "holds a run of " + what + kHint);
  };
  require_equal("data", identity.data, "other data");
  // Version 0.1 didn't record it.
  if (there.has("validation")) require_equal("validation", identity.validation, "other validation data");
  if (start_compared)
    require_equal(kInit, identity.init, "another start adapter than lora.init now leads to");
  require_equal("model", identity.model, "another base checkpoint");
  if (const auto recorded = there.maybe("architecture")) {
    const std::string changed = architecture_difference(*recorded, identity.architecture);
    if (!changed.empty())
      throw Error(where + "holds a run of a base with another config.json (" + changed + ")" + kHint);
  }
  require_equal("policy", identity.policy, "another precision policy");
  const bool longer = settings.verdict == SettingsVerdict::kLonger;
  const bool finished = run.at("finished").as_bool() && !longer;
  if (!resume)
    throw Error(where + "holds " + (finished ? "this run, finished" : "an unfinished run") +
                ", and checkpoint.resume is 'never'" + kHint);
  if (finished) {
    const std::string problem = result_problem(run);
    if (problem.empty()) return Begin::kFinished;
    if (train::CheckpointStore(path_, "", std::nullopt).steps().empty())
      throw Error(where + "holds a finished run whose result is damaged (" + problem +
                  "), and no checkpoint to write it from" + kHint);
    log_warning("the result of the finished run there is damaged (" + problem +
                "): it is written again from the last checkpoint");
    return Begin::kResume;
  }
  if (!settings.regrouped.empty())
    log_warning("the run there goes on with other micro-batches (" + settings.regrouped +
                "): its losses stay the same but for rounding, not to the bit");
  if (longer) log_info("the run there goes on for longer (" + settings.difference + ")");
  return Begin::kResume;
}

void RunFolder::require_same_weights(const Identity& identity, const std::filesystem::path& base) const {
  const std::filesystem::path file = path_ / kRunFile;
  const Json json = Json::parse(read_file(file), file.string());
  const JsonView there = JsonView(json, file.string()).at("identity");
  const auto both = comparable_fingerprints(there.at("model").as_string(), identity.model);
  if (both && both->first == both->second) return;
  throw Error("[model.path] '" + base.string() +
              "': the base checkpoint's weights differ from those that the run in '" + path_.string() +
              "' began with: " + tensors_difference(there.at("tensors"), identity.tensors, base) +
              "; download the checkpoint again, or begin anew there with checkpoint.overwrite=true "
              "checkpoint.resume=never");
}

std::string RunFolder::begun_from() const {
  const Json identity = fact("identity");
  return identity.is_null() ? "" : JsonView(identity, (path_ / kRunFile).string()).get_string(kInit, "");
}

std::optional<std::int64_t> RunFolder::automatic_micro_tokens() const {
  const Json tokens = fact("micro_tokens"), identity = fact("identity");
  if (tokens.is_null() || identity.is_null()) return std::nullopt;
  const std::string file = (path_ / kRunFile).string();
  const std::string settings = JsonView(identity, file).at("settings").as_string();
  if (config::parse_settings(settings, file).batch.micro_tokens) return std::nullopt;
  return JsonView(tokens, file).as_int();
}

Json RunFolder::fact(const std::string& name) const {
  const std::filesystem::path file = path_ / kRunFile;
  if (!std::filesystem::exists(file)) return {};
  const Json json = Json::parse(read_file(file), file.string());
  const Json* fact = json.find(name);
  return fact == nullptr ? Json() : *fact;
}

void RunFolder::write(const Identity& identity, bool finished, const Json& facts) const {
  Json json;
  json.set("finished", finished);
  json.set("identity", Json()
                           .set("settings", identity.settings)
                           .set("steps", identity.steps)
                           .set("data", identity.data)
                           .set("validation", identity.validation)
                           .set(kInit, identity.init)
                           .set("model", identity.model)
                           .set("policy", identity.policy)
                           .set("architecture", architecture_json(identity.architecture))
                           .set("tensors", tensors_json(identity.tensors)));
  if (finished) json.set(kResultFiles, io::list_files(path_, result_files()));
  for (const auto& [key, value] : facts.object()) json.set(key, value);
  write_file_atomic(path_ / kRunFile, json.dump(2) + "\n");
}

std::vector<std::string> RunFolder::result_files() const {
  std::vector<std::string> names{peft::kAdapterTensors, peft::kAdapterConfig};
  for (const char* name : kTokenizerFiles) {
    if (std::filesystem::exists(path_ / name)) names.emplace_back(name);
  }
  return names;
}

void RunFolder::forget_run() const {
  give_up_run();
  std::filesystem::remove(path_ / kRunFile);
}

void RunFolder::require_intact(const std::vector<std::string>& files) const {
  const std::string where = "[checkpoint.output_dir] '" + path_.string() + "' ";
  if (!lock_->is_in_place())
    throw Error(where + "was deleted or replaced while the run was going on", ErrorKind::kRunFailed);
  std::vector<std::string> missing;
  for (const std::string& name : files) {
    if (!std::filesystem::exists(path_ / name)) missing.push_back(name);
  }
  if (!missing.empty())
    throw Error(where + "lacks " + join(missing, ", ") + ": deleted while the run was going on",
                ErrorKind::kRunFailed);
}

void RunFolder::forget_folder(const char* name) const {
  if (io::has_own_marker(path_ / name)) io::remove_tree(path_, name, io::kMarkerFile);
}

void RunFolder::forget_merged() const { forget_folder(kMergedFolder); }

void RunFolder::give_up_run() const {
  write_file_atomic(path_ / kRunFile, Json().set(kGivenUp, true).dump(2) + "\n");
  io::recover_folders(path_);
  train::CheckpointStore(path_, "", std::nullopt).remove_all();
  for (const char* name : {kBestFolder, kMergedFolder}) forget_folder(name);
  for (const char* name : kOwnFiles) std::filesystem::remove(path_ / name);
  for (const char* name : kTokenizerFiles) std::filesystem::remove(path_ / name);
  StepTraces::remove_all(path_);
  train::EventFile::remove_all(path_);
}

}  // namespace lorikeet::recipes
