#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "config/settings.h"
#include "data/packing.h"
#include "data/sampler.h"
#include "data/token_dataset.h"
#include "plan/memory.h"
#include "plan/micro_auto.h"
#include "plan/micro_size.h"
#include "recipes/devices.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// What a step would run on: `device` may be of a kind that isn't here. Products of the policy's compute
/// dtype and threads are those of this process.
ops::DryTarget step_target(const precision::Policy& policy, at::DeviceType device);
/// A device of this machine.
ops::DryTarget step_target(const precision::Policy& policy, const device::Device& device);

/// batch.micro_tokens; for auto what is usual with this model on its device, whether it fits or not.
std::int64_t usual_micro_tokens(const ModelSession& session, const config::Settings& settings);

/// What plan::step_memory needs to know of a run whose largest micro-batch is `micro`, where `degree` ranks
/// share one copy of the frozen weights. The session has to outlive it; nothing has to be allocated.
plan::MemoryInput memory_input(const ModelSession& session, const config::MemorySaving& saving,
                               const plan::MicroSize& micro, int degree, const ops::DryTarget& target,
                               bool cuda_graphs = false);

/// What a run's steps need of memory, by a dry run, and the micro-batches that follow from it. The references
/// must outlive it. `usual_micro_tokens`: the least of all ranks' own.
class StepPlan {
 public:
  StepPlan(const ModelSession& session, const config::Settings& settings, const data::TokenDataset& dataset,
           const data::Sampler& sampler, const config::MemorySaving& saving, std::int64_t usual_micro_tokens)
      : session_(session),
        settings_(settings),
        dataset_(dataset),
        sampler_(sampler),
        saving_(saving),
        usual_micro_tokens_(usual_micro_tokens),
        largest_(dataset, sampler) {}

  const config::MemorySaving& saving() const { return saving_; }
  void save_by(const config::MemorySaving& saving) { saving_ = saving; }

  /// Where `degree` ranks share one copy of the frozen weights.
  plan::MemoryEstimate memory(std::int64_t micro_tokens, int degree) const;

  /// What recorded micro-steps keep of it; without cuda_graphs 0, and nothing is run to find out.
  std::int64_t graphs_bytes(std::int64_t micro_tokens, int degree) const {
    return settings_.training.cuda_graphs ? memory(micro_tokens, degree).graphs : 0;
  }

  std::int64_t usual_micro_tokens() const { return usual_micro_tokens_; }
  /// batch.micro_tokens; for auto the usual number, or the smaller one at which a step fits
  /// into the memory of such devices, and into what is free of it. A function of its arguments and the data:
  /// ranks that give the same get the same.
  plan::AutomaticMicro micro_tokens(const LeastMemory& device, int degree) const;
  /// The smallest number that auto would choose: what tells whether a strategy can fit.
  std::int64_t least_micro_tokens() const;

  /// The same number, or for auto the first of its halves for which `try_step` says that the fullest
  /// micro-batch went through; empty where none did. Every rank has to get the same answers.
  std::optional<std::int64_t> confirmed(std::int64_t micro_tokens,
                                        const std::function<bool(const data::MicroOptions&)>& try_step) const;

  /// What to tell when memory has run out although `got` bytes were had: what a step needs, and changes that
  /// a dry run finds to need no more than these. `degree` of `world_size` ranks share the weights.
  std::string out_of_memory(std::int64_t got, std::int64_t micro_tokens, int degree, int world_size) const;

  /// Throws Error (the environment is unfit), with numbers and the changes that would fit, where what is held
  /// from the first step to the last exceeds `available` bytes: then nothing need be allocated to know. A
  /// step that alone exceeds them may be estimated too high, and is let through.
  void require_held_fits(std::int64_t available, std::int64_t micro_tokens, int degree, int world_size) const;

 private:
  /// Lines of changes that need no more than `limit`, or that there are none.
  std::string changes_within(std::int64_t limit, std::int64_t micro_tokens, int degree, int world_size) const;
  plan::MicroSize largest(std::int64_t micro_tokens) const;

  const ModelSession& session_;
  const config::Settings& settings_;
  const data::TokenDataset& dataset_;
  const data::Sampler& sampler_;
  config::MemorySaving saving_;
  std::int64_t usual_micro_tokens_;
  mutable plan::LargestMicroBatches largest_;  // remembers what it was asked
};

/// Warns that auto came to `now` tokens instead of `before`, which need more memory than `memory` ("is
/// free").
void warn_of_smaller_micro(std::int64_t before, std::int64_t now, const std::string& memory);

}  // namespace lorikeet::recipes
