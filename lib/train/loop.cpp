#include "train/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/counted.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "ops/own_stream.h"
#include "trace/range.h"
#include "trace/step_trace.h"
#include "train/evaluation.h"
#include "train/memory.h"
#include "train/step_pipeline.h"

namespace lorikeet::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

std::string format_loss(double loss) { return format_number("%.4f", loss); }

/// One run's loop: its parts and where it stands.
class Loop {
 public:
  Loop(const LoopParts& parts, const LoopOptions& options, const LoopHooks& hooks, RunState& state)
      : p_(parts),
        options_(options),
        hooks_(hooks),
        state_(state),
        stream_(options.cuda_graphs ? parts.device : at::Device(at::kCPU)),
        pipeline_(parts, options),
        elapsed_before_(state.elapsed_seconds),
        saved_step_(state.step) {}

  LoopEnd run() {
    const LoopEnd end = run_steps();
    if (const auto use = pipeline_.runner().graph_use(); use && p_.progress != nullptr) {
      p_.progress->message("CUDA graphs: " + std::to_string(use->launched) + " of " +
                           counted(use->micro_steps, "micro-step") + " were launches of " +
                           counted(use->graphs, "graph"));
    }
    return end;
  }

 private:
  LoopEnd run_steps() {
    if (!p_.adapters.store().policy().gradient_scaling) {
      state_.scaler.reset();
    } else if (!state_.scaler) {
      state_.scaler.emplace();
    }
    const std::int64_t total = p_.sampler.total_steps();
    if (state_.validation_pending) {
      if (const auto end = end_step(p_.sampler.step(state_.step - 1))) return *end;
    } else if (state_.step < total && patience_spent()) {
      return stop_early();
    }
    while (state_.step < total) {
      if (!ahead_ && interrupted()) return interrupt();
      const data::Step step = ahead_ ? ahead_->step : p_.sampler.step(state_.step);
      const StepMetrics metrics = train_and_trace(step);
      if (!std::isfinite(metrics.grad_norm)) report_skipped();
      write_line(metrics.json());
      if (p_.progress != nullptr) p_.progress->step(metrics);
      if (const auto end = end_step(step)) return *end;
    }
    return LoopEnd::kFinished;
  }

  // Validates and saves behind a step, where these are due. Gives the loop's end, if this is one. A
  // validation may take long: what is due is saved before it, too, and a run that ends within it goes on by
  // validating.
  std::optional<LoopEnd> end_step(const data::Step& step) {
    const bool last = state_.step == p_.sampler.total_steps();
    const bool save_due = last || checkpoint_due(step);
    state_.validation_pending =
        p_.validation != nullptr && (state_.validation_pending || validation_due(step, last));
    if (state_.validation_pending) {
      if (save_due && saved_step_ != state_.step) save();
      if (!validate()) return interrupt();
      state_.validation_pending = false;
    }
    const bool stop = patience_spent();
    if (save_due || stop) save();
    return stop && !last ? std::optional(stop_early()) : std::nullopt;
  }

  // With several ranks what one of them was told counts for all once the step's reports are exchanged.
  bool interrupted() const {
    if (p_.group != nullptr) return group_interrupted_;
    return hooks_.interrupted && hooks_.interrupted();
  }

  std::optional<std::filesystem::path> trace_file(std::int64_t step) const {
    return hooks_.trace_file ? hooks_.trace_file(step) : std::nullopt;
  }

  StepMetrics train_and_trace(const data::Step& step) {
    const auto file = trace_file(step.index + 1);
    std::optional<trace::StepTrace> trace;
    if (file) trace.emplace(p_.device.is_cuda());
    const RunState before = state_;
    const StepMetrics metrics = train(step);
    if (!p_.device.is_cuda()) release_free_heap();
    if (!is_finite(metrics)) {
      state_ = before;
      fail(metrics, step);
    }
    if (!first_step_done_ && hooks_.first_step) hooks_.first_step();
    first_step_done_ = true;
    try {
      if (trace) trace->save(*file);
    } catch (const Error& error) {  // no reason to end a run
      log_warning(error.what());
    }
    return metrics;
  }

  // Runs one optimizer step and waits for its numbers. A GPU gets the step behind it before that, so that it
  // has work while the host reads, reports and makes batches.
  StepMetrics train(const data::Step& step) {
    const trace::Range range("step", {{"step", step.index + 1}});
    const LaunchedStep current = ahead_ ? *std::exchange(ahead_, std::nullopt) : launch(step);
    if (may_run_ahead(step)) ahead_ = launch(p_.sampler.step(step.index + 1));
    return finish(current);
  }

  LaunchedStep launch(const data::Step& step) {
    return pipeline_.launch(step, state_.scaler ? state_.scaler->scale() : 1);
  }

  StepMetrics finish(const LaunchedStep& launched) {
    const FinishedStep finished = pipeline_.finish(launched, hooks_.interrupted);
    group_interrupted_ = group_interrupted_ || finished.interrupted;
    StepMetrics m = finished.metrics;
    if (state_.scaler) {
      m.loss_scale = launched.gradient_scale;
      overflowed_at_one_ = !state_.scaler->update(std::isfinite(m.grad_norm));
      m.skipped_steps = state_.scaler->skipped();
    }
    state_.step = m.step;
    state_.elapsed_seconds = elapsed_before_ + seconds_between(start_, Clock::now());
    m.elapsed_seconds = state_.elapsed_seconds;
    return m;
  }

  // Whether the next step may be launched before this one's numbers are there: these decide nothing of it,
  // and nothing that reads the adapter or stands for a step's end comes between.
  bool may_run_ahead(const data::Step& step) const {
    const std::int64_t next = step.index + 1;
    if (!p_.device.is_cuda() || p_.group != nullptr || state_.scaler || !first_step_done_) return false;
    const bool last = next == p_.sampler.total_steps();
    return !last && !validation_due(step, last) && !checkpoint_due(step) && !trace_file(next) &&
           !trace_file(next + 1) && !interrupted();
  }

  bool is_finite(const StepMetrics& m) const {
    const bool skipped = state_.scaler && !overflowed_at_one_;
    return std::isfinite(m.loss) && (std::isfinite(m.grad_norm) || skipped);
  }

  // Ends the run at a step whose numbers aren't finite. Such a step changes nothing, so that the one before
  // it can be saved.
  [[noreturn]] void fail(const StepMetrics& m, const data::Step& step) {
    const std::string kept = save_unchanged();
    throw StepNotFinite(
        "[train] step " + std::to_string(m.step) + ": " +
        (std::isfinite(m.loss) ? "the gradient norm" : "the loss") + " is not finite; its examples are on " +
        p_.training.source_places(step.examples) + " of the training data; " + kept + "; " +
        (m.step == 1 ? "nothing was learnt before it: look at the base's weights, lora.init and these rows"
                     : "lower optimizer.lr or look at these rows") +
        (state_.scaler ? "; values beyond fp16's 65504 do this too: precision.preset=bf16 or fp32 has room"
                       : ""));
  }

  // Saves state_'s step unless the optimizer has counted an update since: one launched ahead on a GPU may
  // have had finite gradients. Says what there is to go on from.
  std::string save_unchanged() {
    const std::int64_t skipped = state_.scaler ? state_.scaler->skipped() : 0;
    const auto updates = p_.optimizer.updates().item<double>();
    try {
      if (saved_step_ < state_.step && updates == static_cast<double>(state_.step - skipped)) save();
    } catch (const Error& error) {
      log_warning(error.what());
    }
    return saved_step_ > 0 ? "the last checkpoint is that of step " + std::to_string(saved_step_)
                           : std::string("no checkpoint was written before it");
  }

  void write_line(const Json& line) const {
    if (p_.metrics != nullptr && *p_.metrics) (*p_.metrics)->write(line);
  }

  // On the rank that shows progress.
  void say(const std::string& text) const {
    if (p_.progress != nullptr) p_.progress->message("step " + std::to_string(state_.step) + ": " + text);
  }

  void report_skipped() const {
    say("gradients overflowed and the step was skipped; they are scaled by " +
        std::to_string(static_cast<std::int64_t>(state_.scaler->scale())) + " from now on");
  }

  bool validation_due(const data::Step& step, bool last) const {
    if (p_.validation == nullptr) return false;
    if (!options_.validate_every_steps) return last || step.last_of_epoch;
    return last || (step.index + 1) % *options_.validate_every_steps == 0;
  }

  // False when a signal has interrupted it.
  bool validate() {
    const Evaluation evaluation =
        evaluate(p_.model, *p_.validation, options_.micro, p_.device, p_.group, hooks_.interrupted);
    if (evaluation.interrupted) {
      say("the validation was interrupted; the run goes on with it");
      return false;
    }
    const double loss = evaluation.loss();
    write_line(Json().set("step", state_.step).set("val_loss", loss));
    const bool better = std::isfinite(loss) && (!state_.best || loss < state_.best->val_loss);
    say("validation loss " + format_loss(loss) + (better ? ", the lowest so far" : ""));
    if (better) {
      state_.best = RunState::Best{state_.step, loss};
      state_.evaluations_since_best = 0;
      if (hooks_.new_best) hooks_.new_best(state_);
    } else {
      ++state_.evaluations_since_best;
    }
    return true;
  }

  // Part of the state that checkpoints keep: a run stopped right after it ends early too when it goes on.
  bool patience_spent() const {
    return p_.validation != nullptr && options_.patience &&
           state_.evaluations_since_best >= *options_.patience;
  }

  LoopEnd stop_early() const {
    say("stopped early, " + counted(state_.evaluations_since_best, "validation") +
        " in a row brought no lower loss" +
        (state_.best
             ? " than " + format_loss(state_.best->val_loss) + " at step " + std::to_string(state_.best->step)
             : ""));
    return LoopEnd::kEarlyStop;
  }

  bool checkpoint_due(const data::Step& step) const {
    if (options_.save_every_steps && (step.index + 1) % *options_.save_every_steps == 0) return true;
    return options_.save_every_epochs && step.last_of_epoch &&
           (step.epoch + 1) % *options_.save_every_epochs == 0;
  }

  void save() {
    if (p_.metrics != nullptr && *p_.metrics) (*p_.metrics)->sync();
    if (p_.checkpoints != nullptr) p_.checkpoints->save(state_, p_.adapters, p_.optimizer);
    saved_step_ = state_.step;
    if (hooks_.saved) hooks_.saved();
  }

  LoopEnd interrupt() {
    if (state_.step > 0 && saved_step_ != state_.step) save();
    return LoopEnd::kInterrupted;
  }

  const LoopParts& p_;
  const LoopOptions& options_;
  const LoopHooks& hooks_;
  RunState& state_;
  const ops::OwnStream stream_;  // of all that follows
  StepPipeline pipeline_;
  std::optional<LaunchedStep> ahead_;  // the one after state_.step
  bool group_interrupted_ = false;
  double elapsed_before_;
  Clock::time_point start_ = Clock::now();
  bool first_step_done_ = false;
  bool overflowed_at_one_ = false;  // gradients that were not scaled
  std::int64_t saved_step_;
};

}  // namespace

LoopEnd run_loop(const LoopParts& parts, const LoopOptions& options, const LoopHooks& hooks,
                 RunState& state) {
  return Loop(parts, options, hooks, state).run();
}

}  // namespace lorikeet::train
