#include "train/loop.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "parallel/gradient_reducer.h"
#include "parallel/step_table.h"
#include "trace/range.h"
#include "trace/step_trace.h"
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

std::string format_loss(double loss) { return format_number("%.4f", loss); }

/// One run's loop: its parts and where it stands.
class Loop {
 public:
  Loop(const LoopParts& parts, const LoopOptions& options, const LoopHooks& hooks, RunState& state)
      : p_(parts),
        options_(options),
        hooks_(hooks),
        state_(state),
        reducer_(make_reducer(parts)),
        runner_(parts.model, parts.adapters, parts.optimizer, reducer_ ? &*reducer_ : nullptr,
                options.saving),
        elapsed_before_(state.elapsed_seconds) {}

  LoopEnd run() {
    if (!p_.adapters.store().policy().gradient_scaling) {
      state_.scaler.reset();
    } else if (!state_.scaler) {
      state_.scaler.emplace();
    }
    const std::int64_t total = p_.sampler.total_steps();
    if (state_.step < total && patience_spent()) return stop_early();
    while (state_.step < total) {
      if (interrupted()) return interrupt();
      const data::Step step = p_.sampler.step(state_.step);
      const StepMetrics metrics = train_and_trace(step);
      if (!p_.device.is_cuda()) release_free_heap();
      require_finite(metrics, step);
      if (!std::isfinite(metrics.grad_norm)) report_skipped();
      if (p_.metrics != nullptr) p_.metrics->write(metrics.json());
      if (p_.progress != nullptr) p_.progress->step(metrics);
      if (!first_step_done_ && hooks_.first_step) hooks_.first_step();
      first_step_done_ = true;

      const bool last = state_.step == total;
      if (validation_due(step, last)) validate();
      const bool stop = patience_spent();
      if (last || stop || checkpoint_due(step)) save();
      if (stop && !last) return stop_early();
    }
    return LoopEnd::kFinished;
  }

 private:
  static std::optional<parallel::GradientReducer> make_reducer(const LoopParts& parts) {
    if (parts.group == nullptr) return std::nullopt;
    return std::make_optional<parallel::GradientReducer>(*parts.group, parts.adapters, parts.model);
  }

  // With several ranks what one of them was told counts for all once the step's reports are exchanged.
  bool interrupted() const {
    if (p_.group != nullptr) return group_interrupted_;
    return hooks_.interrupted && hooks_.interrupted();
  }

  data::Share share() const {
    if (p_.group == nullptr) return {};
    return {p_.group->rank(), p_.group->size(), p_.model.store().is_split()};
  }

  StepMetrics train_and_trace(const data::Step& step) {
    const auto file = hooks_.trace_file ? hooks_.trace_file(state_.step + 1) : std::nullopt;
    if (!file) return train(step);
    trace::StepTrace trace(p_.device.is_cuda());
    const StepMetrics metrics = train(step);
    try {
      trace.save(*file);
    } catch (const Error& error) {  // no reason to end a run
      log_warning(error.what());
    }
    return metrics;
  }

  // This rank's part of a step.
  std::vector<nn::Batch> load(const data::Step& step) const {
    const trace::Range range("data", {{"examples", static_cast<std::int64_t>(step.examples.size())}});
    const auto micro_batches = data::make_micro_batches(p_.training, step.examples, options_.micro, share());
    return to_device(micro_batches, p_.device);
  }

  // Runs one optimizer step and waits for its numbers.
  StepMetrics train(const data::Step& step) {
    const Clock::time_point begin = Clock::now();
    const double waited = p_.group != nullptr ? p_.group->ledger()->waited_seconds : 0;
    const std::map<std::string, double> sent = sent_bytes();
    const trace::Range range("step", {{"step", state_.step + 1}});
    const std::vector<nn::Batch> batches = load(step);
    StepMetrics m;
    m.data_seconds = seconds_between(begin, Clock::now());
    m.tokens = data::step_token_count(p_.training, step);
    m.label_tokens = data::step_label_count(p_.training, step);
    m.lr = options_.schedule.at(state_.step);
    const double scale = state_.scaler ? state_.scaler->scale() : 1;

    const StepRunner::Result result =
        runner_.run(batches, m.label_tokens, static_cast<std::uint64_t>(state_.step), m.lr, scale);
    parallel::StepReport own{.data_seconds = m.data_seconds};
    const auto read = [&] {
      const trace::Range waiting("wait for the device");
      own.loss_sum = result.loss_sum.item<double>();
      m.grad_norm = result.grad_norm.item<double>();
    };
    if (p_.group != nullptr) {
      p_.group->while_waiting(read);
    } else {
      read();
    }
    own.step_seconds = seconds_between(begin, Clock::now());
    own.memory_peak_bytes = static_cast<double>(peak_memory_bytes(p_.device));
    if (p_.group != nullptr) {
      own.comm_seconds = p_.group->ledger()->waited_seconds - waited;
      own.interrupted = hooks_.interrupted && hooks_.interrupted() ? 1 : 0;
      if (options_.verify) own.checksum = parallel::checksum(p_.adapters.store().values());
      gather(own, &m);
      for (const auto& [collective, bytes] : sent_bytes()) {
        const auto before = sent.find(collective);
        m.sent_bytes[collective] = bytes - (before == sent.end() ? 0 : before->second);
      }
    } else {
      m.loss = own.loss_sum;
      m.memory_peak_bytes = static_cast<std::uint64_t>(own.memory_peak_bytes);
    }
    m.loss /= static_cast<double>(m.label_tokens);
    if (state_.scaler) {
      m.loss_scale = scale;
      overflowed_at_one_ = !state_.scaler->update(std::isfinite(m.grad_norm));
      m.skipped_steps = state_.scaler->skipped();
    }

    const Clock::time_point end = Clock::now();
    StepSize size{.tokens = m.tokens, .label_tokens = m.label_tokens};
    const AttentionSquares squares(p_.model.spec().layers);
    for (const std::size_t example : step.examples)
      size.attention_squares += squares.of(p_.training.length(example));
    m.step = state_.step + 1;
    m.epoch = epochs_after(step);
    m.examples = static_cast<std::int64_t>(step.examples.size());
    m.step_seconds = seconds_between(begin, end);
    m.flops = step_flops(p_.model.shape(), adapter_size(p_.adapters, p_.model.spec()), size);
    m.peak_flops = options_.peak_flops;
    state_.step = m.step;
    state_.elapsed_seconds = elapsed_before_ + seconds_between(start_, end);
    m.elapsed_seconds = state_.elapsed_seconds;
    return m;
  }

  // So far, by collective.
  std::map<std::string, double> sent_bytes() const {
    std::map<std::string, double> sent;
    if (p_.group == nullptr) return sent;
    for (const auto& [collective, traffic] : p_.group->ledger()->traffic) {
      sent[comm::name_of(collective)] = traffic.sent_bytes;
    }
    return sent;
  }

  // The step's numbers out of what every rank reports of its part.
  void gather(const parallel::StepReport& own, StepMetrics* m) {
    const auto reports = parallel::exchange(*p_.group, own, p_.device);
    m->devices = p_.group->size();
    m->fastest_rank_seconds = std::numeric_limits<double>::infinity();
    for (const parallel::StepReport& report : reports) {
      m->loss += report.loss_sum;
      m->data_seconds = std::max(m->data_seconds, report.data_seconds);
      m->comm_seconds = std::max(m->comm_seconds, report.comm_seconds);
      m->memory_peak_bytes =
          std::max(m->memory_peak_bytes, static_cast<std::uint64_t>(report.memory_peak_bytes));
      const double busy = report.step_seconds - report.comm_seconds;
      m->slowest_rank_seconds = std::max(m->slowest_rank_seconds, busy);
      m->fastest_rank_seconds = std::min(m->fastest_rank_seconds, busy);
      group_interrupted_ = group_interrupted_ || report.interrupted != 0;
      if (report.checksum != reports.front().checksum) {
        throw Error("[train] step " + std::to_string(state_.step + 1) + ": the adapter of rank " +
                        std::to_string(&report - reports.data()) + " differs from rank 0's",
                    ErrorKind::kRunFailed);
      }
    }
  }

  double epochs_after(const data::Step& step) const {
    const auto done = static_cast<double>(step.index + 1 - p_.sampler.first_step(step.epoch));
    return static_cast<double>(step.epoch) +
           done / static_cast<double>(p_.sampler.steps_in_epoch(step.epoch));
  }

  void require_finite(const StepMetrics& m, const data::Step& step) const {
    const bool skipped = state_.scaler && !overflowed_at_one_;
    if (std::isfinite(m.loss) && (std::isfinite(m.grad_norm) || skipped)) return;
    throw Error(
        "[train] step " + std::to_string(m.step) + ": " +
            (std::isfinite(m.loss) ? "the gradient norm" : "the loss") +
            " is not finite; its examples are on " + p_.training.source_places(step.examples) +
            " of the training data; the adapter was not changed by this step and no checkpoint of it was "
            "written; lower optimizer.lr or look at these rows" +
            (state_.scaler
                 ? "; values beyond fp16's 65504 do this too: precision.preset=bf16 or fp32 has room"
                 : ""),
        ErrorKind::kRunFailed);
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
    return last || state_.step % *options_.validate_every_steps == 0;
  }

  void validate() {
    const double loss = evaluate(p_.model, *p_.validation, options_.micro, p_.device, p_.group).loss();
    if (p_.metrics != nullptr) p_.metrics->write(Json().set("step", state_.step).set("val_loss", loss));
    const bool better = std::isfinite(loss) && (!state_.best || loss < state_.best->val_loss);
    say("validation loss " + format_loss(loss) + (better ? ", the lowest so far" : ""));
    if (better) {
      state_.best = RunState::Best{state_.step, loss};
      state_.evaluations_since_best = 0;
      if (hooks_.new_best) hooks_.new_best(state_);
    } else {
      ++state_.evaluations_since_best;
    }
  }

  // Part of the state that checkpoints keep: a run stopped right after it ends early too when it goes on.
  bool patience_spent() const {
    return p_.validation != nullptr && options_.patience &&
           state_.evaluations_since_best >= *options_.patience;
  }

  LoopEnd stop_early() const {
    say("stopped early, " + std::to_string(state_.evaluations_since_best) +
        " validations in a row brought no lower loss" +
        (state_.best
             ? " than " + format_loss(state_.best->val_loss) + " at step " + std::to_string(state_.best->step)
             : ""));
    return LoopEnd::kEarlyStop;
  }

  bool checkpoint_due(const data::Step& step) const {
    if (options_.save_every_steps && state_.step % *options_.save_every_steps == 0) return true;
    return options_.save_every_epochs && step.last_of_epoch &&
           (step.epoch + 1) % *options_.save_every_epochs == 0;
  }

  void save() {
    if (p_.metrics != nullptr) p_.metrics->sync();
    if (p_.checkpoints != nullptr) p_.checkpoints->save(state_, p_.adapters, p_.optimizer);
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
  std::optional<parallel::GradientReducer> reducer_;
  StepRunner runner_;
  bool group_interrupted_ = false;
  double elapsed_before_;
  Clock::time_point start_ = Clock::now();
  bool first_step_done_ = false;
  bool overflowed_at_one_ = false;  // gradients that were not scaled
  std::int64_t saved_step_ = -1;
};

}  // namespace

LoopEnd run_loop(const LoopParts& parts, const LoopOptions& options, const LoopHooks& hooks,
                 RunState& state) {
  return Loop(parts, options, hooks, state).run();
}

}  // namespace lorikeet::train
