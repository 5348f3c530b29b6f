#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "train/event_file.h"

namespace lorikeet::train {

/// What one optimizer step did: a line of metrics.jsonl.
struct StepMetrics {
  std::int64_t step = 0;  ///< steps done, from 1
  double epoch = 0;       ///< epochs done, with the part of the current one
  double loss = 0;        ///< mean negative log-likelihood over the step's label tokens
  double grad_norm = 0;   ///< before clipping
  double lr = 0;
  std::optional<double> loss_scale;  ///< that the step was computed with, where gradients are scaled
  std::int64_t skipped_steps = 0;    ///< so far, for gradients that overflowed
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  std::int64_t label_tokens = 0;
  /// On a single device from where it begins the step to where it has done it, by its own clock; with several
  /// with the exchange of reports.
  double step_seconds = 0;
  double data_seconds = 0;  ///< waiting for micro-batches
  double comm_seconds = 0;  ///< the longest wait of a rank for others
  double comm_share = 0;    ///< the largest part of its own step that a rank waited
  double flops = 0;
  std::optional<double> peak_flops;  ///< the device's, where it is known: gives mfu
  int devices = 1;
  std::map<std::string, double> sent_bytes;  ///< of one device in the step, by collective
  double slowest_rank_seconds = 0;  ///< of the step without waiting for others, where there are several
  double fastest_rank_seconds = 0;
  std::uint64_t memory_peak_bytes = 0;
  double elapsed_seconds = 0;

  Json json() const;
};

/// Appends lines to metrics.jsonl, each written whole and at once.
class MetricsWriter {
 public:
  /// Opens `path`, keeping only lines whose `step` is at most `keep_steps` (a resumed run drops what came
  /// after the checkpoint it goes on from, and a line cut by a crash). Warns of damaged lines, which are
  /// dropped, and of steps up to `keep_steps` whose lines are not there. Where that step's validation is
  /// pending, its line is dropped too.
  MetricsWriter(const std::filesystem::path& path, std::int64_t keep_steps, bool validation_pending = false);

  /// From now on lines are events in TensorBoard too: of a new file beside metrics.jsonl, which takes the
  /// place of what earlier parts of the run wrote from the first new step on.
  void show_in_tensorboard();

  /// Throws Error: kEnvironment when the system refuses, in which case no part of the line stays; kRunFailed
  /// when the file's folder was deleted. A file that alone was deleted begins anew, with a warning.
  void write(const Json& line);

  /// Brings the lines written so far to the disk, as a checkpoint needs that says they are there.
  void sync();

 private:
  void open();

  std::filesystem::path path_;
  std::int64_t kept_steps_;
  UniqueFd fd_;
  std::optional<EventFile> events_;
};

}  // namespace lorikeet::train
