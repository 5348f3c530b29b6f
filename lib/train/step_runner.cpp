#include "train/step_runner.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>

#include "base/counted.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "nn/batch.h"
#include "ops/dtype.h"
#include "trace/range.h"
#include "train/flops.h"
#include "train/micro_step.h"

namespace lorikeet::train {
namespace {

bool all_zero(const at::Tensor& tensor) { return tensor.count_nonzero().item<std::int64_t>() == 0; }

constexpr std::size_t kShown = 8;

}  // namespace

StepRunner::StepRunner(const nn::CausalLM& model, peft::LoraAdapters& adapters, AdamW& optimizer,
                       parallel::GradientReducer* reducer, const config::MemorySaving& saving,
                       std::int64_t largest_tokens, bool cuda_graphs)
    : model_(model), adapters_(adapters), optimizer_(optimizer), reducer_(reducer), saving_(saving) {
  if (cuda_graphs) graphed_.emplace(model);
  if (!saving.offload.activations) return;
  const at::Device device = adapters.store().values().device();
  offload_.emplace(ActivationOffload{ops::HostTransfers(device), largest_tokens});
}

StepRunner::Result StepRunner::run(const std::vector<nn::Batch>& micro_batches, std::int64_t label_count,
                                   std::uint64_t step, double lr, double gradient_scale) {
  const double loss_scale = gradient_scale / static_cast<double>(label_count);
  const peft::AdapterStore& store = adapters_.store();
  at::Tensor loss_sum = at::zeros({}, store.values().options().dtype(ops::to_torch(store.policy().loss)));
  // Without labels there is no gradient; but where weights are gathered on the way every rank has to pass.
  std::vector<const nn::Batch*> passes;
  for (const nn::Batch& batch : micro_batches) {
    if (batch.label_count > 0 || model_.store().is_split()) passes.push_back(&batch);
  }
  for (const nn::Batch* batch : passes) {
    const trace::Range range("micro-batch",
                             {{"tokens", batch->real_tokens}, {"label_tokens", batch->label_count}});
    loss_sum.add_(pass(*batch, {.loss_scale = loss_scale,
                                .step = step,
                                .saving = saving_,
                                .offload = offload_ ? &*offload_ : nullptr,
                                .reducer = batch == passes.back() ? reducer_ : nullptr}));
  }
  if (reducer_ != nullptr) {
    const trace::Range range("reduce gradients");
    reducer_->finish();
  }
  if (!passes.empty()) require_reached(step);
  report_zero_gradients(step);
  const trace::Range range("optimizer", {{"parameters", store.numel()}});
  return {loss_sum, optimizer_.step(lr, gradient_scale)};
}

at::Tensor StepRunner::pass(const nn::Batch& batch, const MicroStepOptions& options) {
  return graphed_ ? graphed_->run(batch, options) : run_micro_step(model_, batch, options);
}

// An adapter that backward doesn't reach never learns, and its gradient of zero alone wouldn't tell: zeros
// can be right.
void StepRunner::require_reached(std::uint64_t step) {
  if (reached_checked_) return;
  std::vector<std::string> missed;
  for (const auto& module : adapters_.modules()) {
    if (!*module.reached) missed.push_back(module.name);
  }
  for (const auto& table : adapters_.tables()) {
    if (!*table.reached) missed.push_back(table.name);
  }
  if (!missed.empty()) {
    throw Error("[train] step " + std::to_string(step + 1) +
                    ": expected backward to reach every adapter, it missed " + std::to_string(missed.size()) +
                    ": " + join_some(missed, kShown) + "; this is a fault of the model family's code",
                ErrorKind::kRunFailed);
  }
  reached_checked_ = true;
}

// At first B is zero, so that only B has a gradient; from the step after B's first change on, A has one too.
void StepRunner::report_zero_gradients(std::uint64_t step) {
  if (a_checked_) return;
  const peft::AdapterStore& store = adapters_.store();
  // By their norm, which makes no tensor of their size. Where it isn't finite the loop reports that.
  double norm = 0;
  comm::while_waiting(reducer_ != nullptr ? &reducer_->group() : nullptr,
                      [&] { norm = store.gradients().norm().item<double>(); });
  if (!std::isfinite(norm)) return;
  std::vector<std::string> zero;
  bool b_all_changed = true;
  const TokenShares shares(model_.spec());
  for (const auto& module : adapters_.modules()) {
    if (shares.is_expert(module.parts.front().name)) continue;  // to which no token may have gone
    const bool b_is_zero = all_zero(store.value(module.b));
    b_all_changed = b_all_changed && !b_is_zero;
    if (!b_checked_ && all_zero(store.gradient(module.b))) zero.push_back(store.segment(module.b).name);
    if (!b_is_zero && !store.segment(module.a).frozen && all_zero(store.gradient(module.a)))
      zero.push_back(store.segment(module.a).name);
  }
  if (!zero.empty()) {
    log_warning(
        "step " + std::to_string(step + 1) + ": the gradients of " + counted(zero.size(), "adapter tensor") +
        " are exactly zero, so that nothing is learnt there: " + join_some(zero, kShown) +
        "; that is right for q_proj and k_proj where no row has more than two tokens, for modules beside "
        "weights of zeros, and where lora.alpha or the learning rate is tiny");
  }
  b_checked_ = true;
  a_checked_ = b_all_changed || !zero.empty();  // reported once
}

}  // namespace lorikeet::train
