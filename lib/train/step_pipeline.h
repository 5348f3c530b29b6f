#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/sampler.h"
#include "nn/batch.h"
#include "ops/device_clock.h"
#include "ops/host_transfers.h"
#include "parallel/gradient_reducer.h"
#include "parallel/step_table.h"
#include "train/flops.h"
#include "train/loop.h"
#include "train/metrics.h"
#include "train/step_runner.h"

namespace lorikeet::train {

/// A step that was put on the device, and what the host knows of it before its numbers are there.
struct LaunchedStep {
  data::Step step;
  StepMetrics metrics;
  double gradient_scale = 1;
  StepRunner::Result result;  ///< lives until it is copied
  ops::HostTransfers::Copy loss_sum, grad_norm;
  /// It begins where the step before it ends, if that wasn't finished when it was launched.
  ops::DeviceClock::Mark begin, end;
  double waited_seconds = 0;                 ///< for other ranks, by all steps before
  std::map<std::string, double> sent_bytes;  ///< by collective, by all steps before
};

struct FinishedStep {
  StepMetrics metrics;       ///< without what belongs to the run: elapsed_seconds, the scaler's
  bool interrupted = false;  ///< a rank of the group, where there is one, was told to stop
};

/// Puts a run's optimizer steps on the device, and reads their numbers when they are there. On a GPU a step
/// may be launched before the last one's numbers are read; steps are finished in the order of their launch.
class StepPipeline {
 public:
  /// Keeps references to both.
  StepPipeline(const LoopParts& parts, const LoopOptions& options);

  /// Makes the batches of this rank's part of the step, and launches all its work. On a GPU that doesn't
  /// wait.
  LaunchedStep launch(const data::Step& step, double gradient_scale);

  /// Waits for the step's numbers, with a group for all ranks'. `interrupted`, which may be empty, is asked
  /// behind the step, for the other ranks to know.
  FinishedStep finish(const LaunchedStep& launched, const std::function<bool()>& interrupted);

  const StepRunner& runner() const { return runner_; }

 private:
  data::Share share() const;
  std::vector<nn::Batch> load(const data::Step& step) const;
  double epochs_after(const data::Step& step) const;
  double flops_of(const data::Step& step, const StepMetrics& m) const;
  std::map<std::string, double> sent_bytes() const;
  bool gather(const parallel::StepReport& own, StepMetrics* m) const;

  const LoopParts& p_;
  const LoopOptions& options_;
  const AdapterSize adapter_size_;
  std::optional<parallel::GradientReducer> reducer_;
  StepRunner runner_;
  ops::HostTransfers transfers_;
  ops::DeviceClock clock_;
  ops::DeviceClock::Mark last_end_;  // of the last step launched
  int in_flight_ = 0;                // steps launched and not finished
};

}  // namespace lorikeet::train
