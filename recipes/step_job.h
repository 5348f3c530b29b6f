#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "config/settings.h"
#include "data/packing.h"
#include "data/sampler.h"
#include "data/token_dataset.h"
#include "ops/dry_run.h"
#include "plan/micro_size.h"
#include "plan/options.h"
#include "recipes/model_session.h"
#include "train/flops.h"

namespace lorikeet::recipes {

/// Tokens, labels and attention's pairs of all of these rows, once each.
train::StepSize size_of_rows(const ModelSession& session, const data::TokenDataset& rows);

/// A run's optimizer step as plan::all_options asks for it, by any of its choices. All arguments must outlive
/// it; nothing has to be allocated.
class StepJob {
 public:
  StepJob(const ModelSession& session, const config::Settings& settings, const ops::DryTarget& target,
          const data::TokenDataset& dataset, const data::Sampler& sampler);

  /// Its functions ask this object.
  plan::Job job();
  const plan::Work& work() const { return work_; }
  /// The largest micro-batch of the run.
  plan::MicroSize largest(std::int64_t micro_tokens);

 private:
  plan::MemoryEstimate memory(const plan::Choice& choice);
  plan::Spread spread(int devices, std::int64_t micro_tokens);
  data::MicroOptions options(std::int64_t micro_tokens) const;

  const ModelSession& session_;
  const config::Settings& settings_;
  const ops::DryTarget& target_;
  const data::TokenDataset& dataset_;
  const data::Sampler& sampler_;
  plan::Work work_;
  // What was answered before.
  using MemoryKey = std::tuple<std::int64_t, config::ActivationCheckpointing, bool, bool, int>;
  std::map<MemoryKey, plan::MemoryEstimate> memories_;
  plan::LargestMicroBatches largest_;
  std::map<std::pair<int, std::int64_t>, plan::Spread> spreads_;
};

}  // namespace lorikeet::recipes
