#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "config/memory_saving.h"
#include "nn/causal_lm.h"
#include "parallel/gradient_reducer.h"
#include "peft/lora.h"
#include "train/adamw.h"
#include "train/graphed_micro_steps.h"
#include "train/kept_layers.h"

namespace lorikeet::train {

/// Forward, backward and update of one optimizer step over its micro-batches.
///
/// The loss is summed over the step's label tokens and divided once, by their count over all micro-batches
/// (and, with several devices, over all of them), which is known before: how examples are grouped changes
/// nothing.
class StepRunner {
 public:
  /// `reducer` sums the gradients over the ranks before the update; nullptr where there is one device.
  /// `saving`: see MicroStepOptions. `largest_tokens`: see ActivationOffload. `cuda_graphs`: see
  /// GraphedMicroSteps.
  StepRunner(const nn::CausalLM& model, peft::LoraAdapters& adapters, AdamW& optimizer,
             parallel::GradientReducer* reducer = nullptr, const config::MemorySaving& saving = {},
             std::int64_t largest_tokens = 0, bool cuda_graphs = false);

  /// Numbers of a step, still on the device: reading them waits for it.
  struct Result {
    at::Tensor loss_sum;   ///< scalar: sum of the labels' negative log-likelihoods, of this rank's part
    at::Tensor grad_norm;  ///< scalar, of the whole step, before clipping
  };

  /// `label_count` is the whole step's. `step` counts from 0 and keys dropout. The loss is multiplied by
  /// `gradient_scale` for backward alone; nothing that is returned is.
  Result run(const std::vector<nn::Batch>& micro_batches, std::int64_t label_count, std::uint64_t step,
             double lr, double gradient_scale = 1);

  /// Of CUDA graphs so far; nothing where they are off.
  std::optional<GraphedMicroSteps::Use> graph_use() const {
    return graphed_ ? std::optional(graphed_->use()) : std::nullopt;
  }

 private:
  void require_reached(std::uint64_t step);
  void report_zero_gradients(std::uint64_t step);
  at::Tensor pass(const nn::Batch& batch, const MicroStepOptions& options);

  const nn::CausalLM& model_;
  peft::LoraAdapters& adapters_;
  AdamW& optimizer_;
  parallel::GradientReducer* reducer_;
  config::MemorySaving saving_;
  std::optional<ActivationOffload> offload_;
  std::optional<GraphedMicroSteps> graphed_;
  bool reached_checked_ = false;
  bool b_checked_ = false;  // the gradients of every lora_B
  bool a_checked_ = false;  // and of every lora_A, since lora_B left zero
};

}  // namespace lorikeet::train
