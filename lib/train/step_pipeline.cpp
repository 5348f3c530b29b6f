#include "train/step_pipeline.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "trace/range.h"
#include "train/device_batch.h"
#include "train/flops.h"
#include "train/memory.h"

namespace lorikeet::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

std::optional<parallel::GradientReducer> make_reducer(const LoopParts& parts) {
  if (parts.group == nullptr) return std::nullopt;
  return std::make_optional<parallel::GradientReducer>(*parts.group, parts.adapters, parts.model);
}

}  // namespace

StepPipeline::StepPipeline(const LoopParts& parts, const LoopOptions& options)
    : p_(parts),
      options_(options),
      adapter_size_(adapter_size(parts.adapters, parts.model.spec())),
      reducer_(make_reducer(parts)),
      runner_(parts.model, parts.adapters, parts.optimizer, reducer_ ? &*reducer_ : nullptr, options.saving,
              options.largest_tokens, options.cuda_graphs),
      transfers_(parts.device),
      clock_(parts.device) {}

LaunchedStep StepPipeline::launch(const data::Step& step, double gradient_scale) {
  LaunchedStep out{.step = step, .gradient_scale = gradient_scale, .sent_bytes = sent_bytes()};
  out.begin = in_flight_ > 0 ? last_end_ : clock_.mark();
  const Clock::time_point begin = Clock::now();
  if (p_.group != nullptr) out.waited_seconds = p_.group->ledger()->waited_seconds;
  const std::vector<nn::Batch> batches = load(step);
  StepMetrics& m = out.metrics;
  m.step = step.index + 1;
  m.epoch = epochs_after(step);
  m.examples = std::ssize(step.examples);
  m.data_seconds = seconds_between(begin, Clock::now());
  m.tokens = data::step_token_count(p_.training, step);
  m.label_tokens = data::step_label_count(p_.training, step);
  m.lr = options_.schedule.at(step.index);
  m.flops = flops_of(step, m);
  m.peak_flops = options_.peak_flops;
  out.result =
      runner_.run(batches, m.label_tokens, static_cast<std::uint64_t>(step.index), m.lr, gradient_scale);
  out.end = last_end_ = clock_.mark();  // before the copies, which are read only behind it
  out.loss_sum = transfers_.to_host(out.result.loss_sum);
  out.grad_norm = transfers_.to_host(out.result.grad_norm);
  ++in_flight_;
  return out;
}

FinishedStep StepPipeline::finish(const LaunchedStep& launched, const std::function<bool()>& interrupted) {
  FinishedStep out{.metrics = launched.metrics};
  StepMetrics& m = out.metrics;
  parallel::StepReport own{.data_seconds = m.data_seconds};
  comm::while_waiting(p_.group, [&] {
    const trace::Range waiting("wait for the device");
    own.loss_sum = transfers_.read(launched.loss_sum);
    m.grad_norm = transfers_.read(launched.grad_norm);
  });
  own.step_seconds = seconds_between(launched.begin.host, Clock::now());
  own.memory_peak_bytes = static_cast<double>(peak_memory_bytes(p_.device));
  if (p_.group != nullptr) {
    own.comm_seconds = p_.group->ledger()->waited_seconds - launched.waited_seconds;
    own.interrupted = interrupted && interrupted() ? 1 : 0;
    if (options_.verify) own.checksum = parallel::checksum(p_.adapters.store().values());
    out.interrupted = gather(own, &m);
    for (const auto& [collective, bytes] : sent_bytes()) {
      const auto before = launched.sent_bytes.find(collective);
      const double sent = bytes - (before == launched.sent_bytes.end() ? 0 : before->second);
      if (sent > 0) m.sent_bytes[collective] = sent;
    }
  } else {
    m.loss = own.loss_sum;
    m.memory_peak_bytes = static_cast<std::uint64_t>(own.memory_peak_bytes);
  }
  m.loss /= static_cast<double>(m.label_tokens);
  --in_flight_;
  // With a group the exchange belongs to the step.
  m.step_seconds = p_.group != nullptr ? seconds_between(launched.begin.host, Clock::now())
                                       : ops::DeviceClock::seconds_between(launched.begin, launched.end);
  return out;
}

data::Share StepPipeline::share() const {
  if (p_.group == nullptr) return {};
  return {p_.group->rank(), p_.group->size(), p_.model.store().is_split()};
}

// This rank's part of a step.
std::vector<nn::Batch> StepPipeline::load(const data::Step& step) const {
  const trace::Range range("data", {{"examples", std::ssize(step.examples)}});
  const auto micro_batches = data::make_micro_batches(p_.training, step.examples, options_.micro, share());
  return to_device(micro_batches, p_.device);
}

double StepPipeline::epochs_after(const data::Step& step) const {
  const auto done = static_cast<double>(step.index + 1 - p_.sampler.first_step(step.epoch));
  return static_cast<double>(step.epoch) + done / static_cast<double>(p_.sampler.steps_in_epoch(step.epoch));
}

double StepPipeline::flops_of(const data::Step& step, const StepMetrics& m) const {
  StepSize size{.tokens = m.tokens, .label_tokens = m.label_tokens};
  const AttentionSquares squares(p_.model.spec().layers, p_.model.shape());
  for (const std::size_t example : step.examples)
    size.attention_squares += squares.of(p_.training.length(example));
  return step_flops(p_.model.shape(), adapter_size_, size);
}

// So far, by collective.
std::map<std::string, double> StepPipeline::sent_bytes() const {
  std::map<std::string, double> sent;
  if (p_.group == nullptr) return sent;
  for (const auto& [collective, traffic] : p_.group->ledger()->traffic) {
    sent[comm::name_of(collective)] = traffic.sent_bytes;
  }
  return sent;
}

// The step's numbers out of what every rank reports of its part. True where one was interrupted.
bool StepPipeline::gather(const parallel::StepReport& own, StepMetrics* m) const {
  const auto reports = parallel::exchange(*p_.group, own, p_.device);
  bool interrupted = false;
  m->devices = p_.group->size();
  m->fastest_rank_seconds = std::numeric_limits<double>::infinity();
  for (const parallel::StepReport& report : reports) {
    m->loss += report.loss_sum;
    m->data_seconds = std::max(m->data_seconds, report.data_seconds);
    m->comm_seconds = std::max(m->comm_seconds, report.comm_seconds);
    // Of the rank's own step: this one may have begun its own while others waited for it.
    if (report.step_seconds > 0)
      m->comm_share = std::max(m->comm_share, report.comm_seconds / report.step_seconds);
    m->memory_peak_bytes =
        std::max(m->memory_peak_bytes, static_cast<std::uint64_t>(report.memory_peak_bytes));
    const double busy = report.step_seconds - report.comm_seconds;
    m->slowest_rank_seconds = std::max(m->slowest_rank_seconds, busy);
    m->fastest_rank_seconds = std::min(m->fastest_rank_seconds, busy);
    interrupted = interrupted || report.interrupted != 0;
    if (report.checksum != reports.front().checksum) {
      throw Error("[train] step " + std::to_string(m->step) + ": the adapter of rank " +
                      std::to_string(&report - reports.data()) + " differs from rank 0's",
                  ErrorKind::kRunFailed);
    }
  }
  return interrupted;
}

}  // namespace lorikeet::train
