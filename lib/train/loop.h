#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "data/micro_batch.h"
#include "data/sampler.h"
#include "nn/causal_lm.h"
#include "peft/lora.h"
#include "train/adamw.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/progress.h"
#include "train/run_state.h"
#include "train/schedule.h"

namespace lorikeet::train {

struct LoopOptions {
  Schedule schedule;
  data::MicroOptions micro;
  std::optional<std::int64_t> save_every_steps;
  std::optional<std::int64_t> save_every_epochs;
  /// Without it a validation comes at the end of each epoch; either way one comes at the run's end.
  std::optional<std::int64_t> validate_every_steps;
  std::optional<std::int64_t> patience;  ///< evaluations without gain before the run ends
  std::optional<double> peak_flops;      ///< of the device, for mfu
  config::MemorySaving saving;           ///< see MicroStepOptions
  std::int64_t largest_tokens = 0;       ///< of a micro-batch, by the plan
  bool cuda_graphs = false;              ///< see GraphedMicroSteps; the loop's work has a stream of its own
  bool verify = false;                   ///< compare the ranks' adapters after every step
};

/// What the loop trains, and on what. With a `group` every rank runs the loop over its part of each step; the
/// run's files and its progress are the first rank's, and null on the others.
struct LoopParts {
  const nn::CausalLM& model;
  peft::LoraAdapters& adapters;
  AdamW& optimizer;
  const data::TokenDataset& training;
  const data::Sampler& sampler;
  const data::TokenDataset* validation;  ///< or nullptr
  at::Device device;
  comm::Communicator* group = nullptr;  ///< nullptr: one device
  const CheckpointStore* checkpoints = nullptr;
  std::optional<MetricsWriter>* metrics = nullptr;  ///< empty ones may be filled by LoopHooks::first_step
  Progress* progress = nullptr;
};

struct LoopHooks {
  /// Asked between steps and between a validation's batches: true saves a checkpoint and ends the run as
  /// interrupted; with a group on all ranks after the step or in the validation in which one said so.
  std::function<bool()> interrupted;
  /// After the first step of this process, once its numbers were found finite and before anything of it is
  /// written.
  std::function<void()> first_step;
  /// Where to write a trace of a step (from 1); nothing: it isn't traced. On a rank of several, its own.
  std::function<std::optional<std::filesystem::path>(std::int64_t step)> trace_file;
  /// After a checkpoint was saved, on every rank; the first one's is there then, for the others it may not
  /// yet be.
  std::function<void()> saved;
  /// A validation loss that is the lowest so far.
  std::function<void(const RunState&)> new_best;
};

/// Thrown at a loss or gradient norm that is not finite (kRunFailed). A run that is resumed before that step
/// repeats it.
class StepNotFinite : public Error {
 public:
  explicit StepNotFinite(const std::string& message) : Error(message, ErrorKind::kRunFailed) {}
};

enum class LoopEnd { kFinished, kEarlyStop, kInterrupted };

/// Runs the steps from `state.step` to the sampler's last, saving, validating and reporting on the way.
/// `state` is kept current. A state whose patience has run out already, of a run that was stopped before it
/// could end, gives kEarlyStop at once; one whose validation is pending begins with that. Throws
/// StepNotFinite at the first loss or gradient norm that is not finite, naming the step and the data's lines,
/// with a checkpoint of the step before it, unless a step behind it has changed the adapter already. Where
/// the policy scales gradients, a step whose gradients overflow is skipped and counted instead, until nothing
/// is left to lower.
LoopEnd run_loop(const LoopParts& parts, const LoopOptions& options, const LoopHooks& hooks, RunState& state);

}  // namespace lorikeet::train
