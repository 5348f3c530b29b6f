#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include "config/memory_saving.h"
#include "models/toy_family.h"
#include "nn/batch.h"
#include "peft/lora.h"
#include "train/micro_step.h"

namespace lorikeet::test {

/// What a step may do to save memory: every grade of recomputation, with and without activations on the host.
inline const std::vector<config::MemorySaving>& savings() {
  static const std::vector<config::MemorySaving> all = [] {
    std::vector<config::MemorySaving> list;
    for (const auto grade : {config::ActivationCheckpointing::kNone, config::ActivationCheckpointing::kMlp,
                             config::ActivationCheckpointing::kFull}) {
      for (const bool activations : {false, true}) list.push_back({grade, {.activations = activations}});
    }
    return list;
  }();
  return all;
}

/// A toy model with adapters on it, whose values are all away from zero.
struct ToyLora {
  peft::LoraAdapters adapters;
  peft::LoraFactory factory;
  nn::CausalLM model;
  State state;
  config::MemorySaving saving = {};

  explicit ToyLora(const peft::LoraConfig& config = {.rank = 3, .alpha = 6},
                   const precision::Policy& policy = fp32_policy(), const nn::WeightShard& shard = {},
                   const nn::CausalLMSpec& spec = toy_spec())
      : adapters(config, policy, /*seed=*/11),
        factory(policy, adapters),
        model(spec, factory),
        state(toy_state(model, 7)) {
    fill(model, state, shard);
    adapters.store().allocate(at::kCPU);
    randomize(5);
  }

  void randomize(std::uint64_t seed) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const at::NoGradGuard no_grad;
    const at::Tensor& values = adapters.store().all_values();
    values.copy_(at::randn({values.numel()}, generator, at::TensorOptions(at::kFloat)) * 0.3);
    adapters.store().refresh_compute();
  }

  /// The summed loss and, flat, the adapters' gradients of `loss_scale` times it.
  std::pair<at::Tensor, at::Tensor> gradients(const std::vector<nn::Batch>& batches, double loss_scale = 1,
                                              std::uint64_t step = 0) {
    adapters.store().gradients().zero_();
    at::Tensor sum = at::zeros({});
    for (const nn::Batch& batch : batches) {
      sum += train::run_micro_step(model, batch, {.loss_scale = loss_scale, .step = step, .saving = saving});
    }
    return {sum, adapters.store().gradients().clone()};
  }
};

/// A batch whose every token but a sequence's first is a label. `first_sample` numbers its sequences.
inline nn::Batch labelled(const std::vector<std::vector<std::int32_t>>& sequences,
                          std::int64_t first_sample = 0) {
  nn::Batch batch = nn::pack_sequences(sequences, {}, at::kCPU);
  batch.sample_ids += first_sample;
  std::vector<std::int64_t> rows, labels;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (std::size_t i = 0; i + 1 < sequences[s].size(); ++i) {
      rows.push_back(batch.sequences.cu_seqlens[s] + static_cast<std::int64_t>(i));
      labels.push_back(sequences[s][i + 1]);
    }
  }
  batch.label_count = static_cast<std::int64_t>(rows.size());
  batch.label_rows = at::tensor(rows, at::TensorOptions(at::kLong));
  batch.labels = at::tensor(labels, at::TensorOptions(at::kLong));
  return batch;
}

/// ||a - b|| / ||b|| in fp64.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

}  // namespace lorikeet::test
