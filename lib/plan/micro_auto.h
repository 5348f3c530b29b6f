#pragma once

#include <cstdint>
#include <functional>

namespace lorikeet::plan {

/// Tokens of a micro-batch that keep a device's matrix units busy; larger ones gain nothing more, and on a
/// CPU fall out of its caches.
inline constexpr std::int64_t kUsualMicroTokensCuda = 8192;
inline constexpr std::int64_t kUsualMicroTokensCpu = 2048;

/// The micro-batch of `batch.micro_tokens: auto`: `usual`, halved until `fits` says yes, the longest row
/// alone fills it, or it is at most 512. Steps are halves, so that a little more or less free memory mostly
/// gives the same. `fits` was asked of the answer last.
std::int64_t automatic_micro_tokens(std::int64_t usual, std::int64_t longest,
                                    const std::function<bool(std::int64_t)>& fits);

}  // namespace lorikeet::plan
