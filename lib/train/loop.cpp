#include "train/loop.h"

#include <ATen/ATen.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/strings.h"
#include "train/device_batch.h"
#include "train/evaluation.h"
#include "train/flops.h"
#include "train/memory.h"
#include "train/step_runner.h"

namespace lorikeet::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

std::string format_loss(double loss) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.4f", loss);
  return buffer.data();
}

/// One run's loop: its parts and where it stands.
class Loop {
 public:
  Loop(const LoopParts& parts, const LoopOptions& options, const LoopHooks& hooks, RunState& state)
      : p_(parts),
        options_(options),
        hooks_(hooks),
        state_(state),
        runner_(parts.model, parts.adapters, parts.optimizer),
        elapsed_before_(state.elapsed_seconds) {}

  LoopEnd run() {
    const std::int64_t total = p_.sampler.total_steps();
    while (state_.step < total) {
      if (hooks_.interrupted && hooks_.interrupted()) return interrupt();
      const data::Step step = p_.sampler.step(state_.step);
      const StepMetrics metrics = train(step);
      require_finite(metrics, step);
      p_.metrics.write(metrics.json());
      p_.progress.step(metrics);
      if (!first_step_done_ && hooks_.first_step) hooks_.first_step();
      first_step_done_ = true;

      const bool last = state_.step == total;
      const bool stop = validation_due(last) && !validate();
      if (last || stop || checkpoint_due(step)) save();
      if (stop && !last) return LoopEnd::kEarlyStop;
    }
    return LoopEnd::kFinished;
  }

 private:
  // Runs one optimizer step and waits for its numbers.
  StepMetrics train(const data::Step& step) {
    const Clock::time_point begin = Clock::now();
    std::vector<nn::Batch> batches;
    StepMetrics m;
    StepSize size;
    for (const data::MicroBatch& micro : data::make_micro_batches(p_.training, step, options_.micro)) {
      m.tokens += micro.real_tokens;
      m.label_tokens += micro.label_count();
      batches.push_back(to_device(micro, p_.device));
    }
    for (const std::size_t example : step.examples) {
      size.squared_lengths += p_.training.length(example) * p_.training.length(example);
    }
    m.data_seconds = seconds_between(begin, Clock::now());
    m.lr = options_.schedule.at(state_.step);

    const StepRunner::Result result =
        runner_.run(batches, m.label_tokens, static_cast<std::uint64_t>(state_.step), m.lr);
    m.loss = result.loss_sum.item<double>() / static_cast<double>(m.label_tokens);
    m.grad_norm = result.grad_norm.item<double>();

    const Clock::time_point end = Clock::now();
    size.tokens = m.tokens;
    size.label_tokens = m.label_tokens;
    m.step = state_.step + 1;
    m.epoch = epochs_after(step);
    m.examples = static_cast<std::int64_t>(step.examples.size());
    m.step_seconds = seconds_between(begin, end);
    m.flops = step_flops(p_.model.shape(), p_.adapters.store().numel(), size);
    m.peak_flops = options_.peak_flops;
    m.memory_peak_bytes = peak_memory_bytes(p_.device);
    state_.step = m.step;
    state_.elapsed_seconds = elapsed_before_ + seconds_between(start_, end);
    m.elapsed_seconds = state_.elapsed_seconds;
    return m;
  }

  double epochs_after(const data::Step& step) const {
    const auto done = static_cast<double>(step.index + 1 - p_.sampler.first_step(step.epoch));
    return static_cast<double>(step.epoch) +
           done / static_cast<double>(p_.sampler.steps_in_epoch(step.epoch));
  }

  void require_finite(const StepMetrics& m, const data::Step& step) const {
    if (std::isfinite(m.loss) && std::isfinite(m.grad_norm)) return;
    std::vector<std::string> lines;
    for (const std::size_t example : step.examples)
      lines.push_back(std::to_string(p_.training.source_line(example)));
    throw Error(
        "[train] step " + std::to_string(m.step) + ": " +
            (std::isfinite(m.loss) ? "the gradient norm" : "the loss") +
            " is not finite; its examples are on lines " + join(lines, ", ") +
            " of the training data; the adapter was not changed by this step and no checkpoint of it was "
            "written; lower optimizer.lr or look at these lines",
        ErrorKind::kRunFailed);
  }

  bool validation_due(bool last) const {
    if (p_.validation == nullptr) return false;
    return last || (options_.validate_every_steps && state_.step % *options_.validate_every_steps == 0);
  }

  // False when patience has run out.
  bool validate() {
    const double loss = evaluate(p_.model, *p_.validation, options_.micro, p_.device).loss();
    p_.metrics.write(Json().set("step", state_.step).set("val_loss", loss));
    const bool better = std::isfinite(loss) && (!state_.best || loss < state_.best->val_loss);
    p_.progress.message("step " + std::to_string(state_.step) + ": validation loss " + format_loss(loss) +
                        (better ? ", the lowest so far" : ""));
    if (better) {
      state_.best = RunState::Best{state_.step, loss};
      state_.evaluations_since_best = 0;
      if (hooks_.new_best) hooks_.new_best(state_);
      return true;
    }
    ++state_.evaluations_since_best;
    return !options_.patience || state_.evaluations_since_best < *options_.patience;
  }

  bool checkpoint_due(const data::Step& step) const {
    if (options_.save_every_steps && state_.step % *options_.save_every_steps == 0) return true;
    return options_.save_every_epochs && step.last_of_epoch &&
           (step.epoch + 1) % *options_.save_every_epochs == 0;
  }

  void save() {
    p_.checkpoints.save(state_, p_.adapters, p_.optimizer);
    saved_step_ = state_.step;
  }

  LoopEnd interrupt() {
    if (state_.step > 0 && saved_step_ != state_.step) save();
    return LoopEnd::kInterrupted;
  }

  const LoopParts& p_;
  const LoopOptions& options_;
  const LoopHooks& hooks_;
  RunState& state_;
  StepRunner runner_;
  double elapsed_before_;
  Clock::time_point start_ = Clock::now();
  bool first_step_done_ = false;
  std::int64_t saved_step_ = -1;
};

}  // namespace

LoopEnd run_loop(const LoopParts& parts, const LoopOptions& options, const LoopHooks& hooks,
                 RunState& state) {
  return Loop(parts, options, hooks, state).run();
}

}  // namespace lorikeet::train
