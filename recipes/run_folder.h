#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "io/folders.h"
#include "models/fingerprint.h"

namespace lorikeet::recipes {

/// The tokenizer's files that go with an adapter, as far as the base has them.
inline constexpr std::array kTokenizerFiles{"tokenizer.json",        "tokenizer.model",
                                            "tokenizer_config.json", "special_tokens_map.json",
                                            "added_tokens.json",     "chat_template.jinja"};
/// The merged checkpoint.
inline constexpr const char* kMergedFolder = "merged";

/// A run's output folder, locked for as long as the object lives: decides whether a run starts, goes on or is
/// already done, so that no run ever writes over another by accident.
class RunFolder {
 public:
  enum class Begin {
    kFresh,     ///< nothing there
    kReplace,   ///< a run that `overwrite` gives up, or one that has nothing to lose: no step of it was kept
    kResume,    ///< an unfinished run of the same settings and data, or one that is to become longer
    kFinished,  ///< a finished one
  };

  /// What identifies a run.
  struct Identity {
    std::string settings;    ///< resolved settings as YAML; compared are those that change numbers
    std::int64_t steps = 0;  ///< optimizer steps of the whole run
    // Fingerprints with their functions' versions, as in base/fingerprint.h.
    std::string data;
    std::string validation;  ///< of the held-out rows; "" without
    std::string init;        ///< of the adapter in lora.init's folder; "" where none is named, or there
    std::string model;       ///< the base checkpoint's: by samples, and by all of it once it was read
    std::string policy;
    nn::Architecture architecture;    ///< what config.json says
    models::WeightDigests tensors{};  ///< the base's, once it was read
  };

  /// Makes the folder where it is absent and locks it. Throws Error when it can't be written, another process
  /// holds it, or it holds files that aren't a run's; such a folder stays as it is.
  explicit RunFolder(std::filesystem::path path);
  /// Takes away the lock, and the folders made for it, when no run was begun.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  /// Compares with the run that is there. Throws Error, naming what differs, when it is another one, or its
  /// run.json is damaged: with `overwrite` these are replaced. The same run without `resume` is an Error too,
  /// and replaced with `overwrite`. A finished one whose result is gone or damaged goes on from its last
  /// checkpoint, with a warning; Error without one. Changes nothing, but for the leftovers of killed writers,
  /// which go.
  Begin begin(const Identity& identity, bool resume, bool overwrite) const;

  /// The same for the base's weights, to be called for a run that goes on once they were read: throws Error,
  /// naming tensors and their files in `base`, when they aren't those that the run there began with. Older
  /// versions of this program recorded only samples of them, which `begin` has compared.
  void require_same_weights(const Identity& identity, const std::filesystem::path& base) const;

  /// Removes the run altogether, for one that ends before anything of it is worth keeping.
  void forget_run() const;

  /// Throws Error (kRunFailed) when the folder was deleted or replaced since it was locked, or one of `files`
  /// isn't in it: what a run that says it is done must not overlook.
  void require_intact(const std::vector<std::string>& files) const;

  /// Removes what the run that is there wrote, and nothing else. Its run.json stays, as that of a given-up
  /// run, until `write` replaces it: killed in between, the folder is still known as ours. To be called
  /// once the new run has done its first step: until then nothing of it is worth the loss.
  void give_up_run() const;

  /// Removes the merged checkpoint of an adapter that was the result before.
  void forget_merged() const;

  /// Writes run.json: `identity`, whether the run is finished, with sizes and SHA-256 of its result's files
  /// then, and `facts` for people.
  void write(const Identity& identity, bool finished, const Json& facts) const;

  /// Identity::init of the run there; "" where its version recorded none.
  std::string begun_from() const;

  /// The micro-batches that the run there settled by itself; none where its settings said them.
  std::optional<std::int64_t> automatic_micro_tokens() const;

  /// One of the facts of the run that is there; null where there is no such run or fact.
  Json fact(const std::string& name) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  bool nothing_to_lose() const;
  std::string result_problem(const JsonView& run) const;
  std::vector<std::string> result_files() const;
  void forget_folder(const char* name) const;
  static Json read_record(const std::filesystem::path& file);
  Begin compare(const Json& record, const Identity& identity, bool resume) const;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // folders that weren't there, the innermost first
  std::optional<io::FolderLock> lock_;
};

}  // namespace lorikeet::recipes
