#include "recipes/step_job.h"

#include "ops/quantized/quantized_format.h"
#include "parallel/unit_prefetcher.h"
#include "plan/card_time.h"
#include "plan/step_time.h"
#include "recipes/settings_map.h"
#include "recipes/step_plan.h"

namespace lorikeet::recipes {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

plan::StoredBytes stored_bytes(const precision::Policy& policy) {
  const double plain = as_double(dtype_size(policy.base_storage));
  if (!policy.quantization) return {plain, plain};
  // Of a matrix of usual size: what is stored once a matrix, its code books, counts little then.
  constexpr std::int64_t kSide = 1024;
  const std::int64_t bytes = ops::quantized_format(*policy.quantization).bytes(kSide, kSide);
  return {plain, as_double(bytes) / as_double(kSide * kSide)};
}

// The mean over an epoch's steps.
plan::Work work_of(const ModelSession& session, const data::TokenDataset& dataset,
                   const data::Sampler& sampler) {
  const train::StepSize all = size_of_rows(session, dataset);
  const nn::CausalLMSpec& spec = session.model->spec();
  const double steps = as_double(sampler.steps_in_epoch(0));
  const nn::ModelShape& shape = session.model->shape();
  const train::AdapterSize adapter = train::adapter_size(*session.adapters, spec);
  const double flops = train::step_flops(shape, adapter, all);
  const double head = train::step_flops({.hidden_size = shape.hidden_size, .vocab_size = shape.vocab_size},
                                        {.head = adapter.head, .head_table = adapter.head_table}, all);
  const auto recomputed = [&](config::ActivationCheckpointing grade) {
    return train::recomputed_flops(spec, adapter, all, grade) / steps;
  };
  const precision::Policy& policy = session.policy;
  const plan::StoredBytes stored = stored_bytes(policy);
  plan::InputsUnit inputs;
  if (const nn::LayerInputs* unit = session.model->layer_inputs()) {
    const nn::GroupSpec projection = spec.layer_inputs->projection_group();
    inputs = {.bytes = as_double(unit->unit().matrix_bytes()),
              .linear_parameters = projection.out_features() * projection.in_features,
              .learns = session.model->layer_inputs_learn()};
  }
  return {
      .tokens = as_double(all.tokens) / steps,
      .layers = as_double(shape.layers),
      .flops = flops / steps,
      .recomputed_flops = recomputed(config::ActivationCheckpointing::kFull),
      .recomputed_mlp_flops = recomputed(config::ActivationCheckpointing::kMlp),
      .gradient_bytes = as_double(session.adapters->store().numel()) * as_double(dtype_size(policy.reduce)),
      .frozen_bytes = as_double(session.model->store().bytes()),
      .streamed_bytes = as_double(parallel::fetch_cost(*session.model, /*parts=*/1).payload_bytes),
      .decoded_bytes = plan::decoded_bytes(spec, stored.linear, policy),
      .forward_decodes = policy.matmul != config::Matmul::kFp8,
      .uses = plan::unit_uses(shape, stored, head / flops, inputs)};
}

}  // namespace

train::StepSize size_of_rows(const ModelSession& session, const data::TokenDataset& rows) {
  train::StepSize all{rows.total_tokens(), rows.total_labels(), 0};
  const train::AttentionSquares squares(session.model->spec().layers, session.model->shape());
  for (std::size_t i = 0; i < rows.size(); ++i) all.attention_squares += squares.of(rows.length(i));
  return all;
}

StepJob::StepJob(const ModelSession& session, const config::Settings& settings, const ops::DryTarget& target,
                 const data::TokenDataset& dataset, const data::Sampler& sampler)
    : session_(session),
      settings_(settings),
      target_(target),
      dataset_(dataset),
      sampler_(sampler),
      work_(work_of(session, dataset, sampler)),
      largest_(dataset, sampler) {}

plan::Job StepJob::job() {
  return {.work = work_,
          .memory = [this](const plan::Choice& choice) { return memory(choice); },
          .spread = [this](int devices, std::int64_t micro) { return spread(devices, micro); }};
}

plan::MemoryEstimate StepJob::memory(const plan::Choice& choice) {
  const config::Offload& offload = choice.saving.offload;
  const MemoryKey key{choice.micro_tokens, choice.saving.checkpointing, offload.activations, offload.weights,
                      choice.degree};
  const auto found = memories_.find(key);
  if (found != memories_.end()) return found->second;
  return memories_[key] =
             plan::step_memory(memory_input(session_, choice.saving, largest(choice.micro_tokens),
                                            choice.degree, target_, settings_.training.cuda_graphs));
}

plan::Spread StepJob::spread(int devices, std::int64_t micro_tokens) {
  const auto key = std::pair(devices, micro_tokens);
  const auto found = spreads_.find(key);
  if (found != spreads_.end()) return found->second;
  return spreads_[key] = plan::spread_of_steps(dataset_, sampler_, options(micro_tokens), devices);
}

plan::MicroSize StepJob::largest(std::int64_t micro_tokens) { return largest_.of(options(micro_tokens)); }

data::MicroOptions StepJob::options(std::int64_t micro_tokens) const {
  return micro_options(settings_, micro_tokens);
}

}  // namespace lorikeet::recipes
