#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "config/settings.h"
#include "probe/product_rates.h"
#include "recipes/model_session.h"
#include "recipes/rank_group.h"

namespace lorikeet::recipes {

/// How a run's CPUs multiply 16-bit matrices, and why.
struct ProductChoice {
  ops::HalfProducts products = ops::HalfProducts::kByFeature;
  std::string reason = "feature";  ///< "setting", "feature", "measured", "cache" or "resumed"
  std::optional<probe::ProductRates> rates;

  /// What run.json keeps: {"choice": "native" or "widened", "reason", and where they are known
  /// "native_gflops_per_second", "widened_gflops_per_second", "native_over_widened"}.
  Json json() const;
  /// The choice of `json`, which says "resumed" of a run that goes on. Throws Error for what json() didn't
  /// write.
  static ProductChoice from_json(const JsonView& json);
  /// "native (measured: 812 GFLOP/s, 240 widened)"
  std::string describe() const;
};

/// The products of a pass over `tokens` tokens, by the model's shape, as if every projection had an adapter
/// (of rank 64 at most).
probe::ProductJob product_job(const ModelSession& session, std::int64_t tokens, bool backward);

/// The choice for a job of `policy` on this machine: what precision.matmul says; by feature where
/// `deterministic` or the model is so small (below 4 million parameters of frozen matrices) that its
/// products are too short to be timed; else the faster way, from the cache or measured now and kept there.
/// Nothing of the process is changed but that libtorch's CPU allocator is installed.
ProductChoice choose_products(const precision::Policy& policy, const probe::ProductJob& job,
                              bool deterministic);

/// Whether there is anything to choose: 16-bit products on a CPU.
bool has_product_choice(const ModelSession& session);

/// Makes the choice for training and sets it in the process: the first rank's on all ranks. `begun` is what
/// run.json keeps of a run that goes on, on the first rank; null for one of an older version, which chose by
/// feature; empty for a new run. Empty where there is nothing to choose.
std::optional<ProductChoice> settle_products(const ModelSession& session, const config::Settings& settings,
                                             RankGroup& group, const std::optional<Json>& begun);

/// The same for a process on its own that evaluates or plans a training run: with that run's job, so that it
/// finds what the run has measured.
std::optional<ProductChoice> settle_products(const ModelSession& session, const config::Settings& settings);

/// The same for `sequences` sequences that are generated together.
std::optional<ProductChoice> settle_generation_products(const ModelSession& session,
                                                        const config::Settings& settings,
                                                        std::int64_t sequences);

}  // namespace lorikeet::recipes
