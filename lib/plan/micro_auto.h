#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lorikeet::plan {

/// Tokens of a micro-batch that keep a device's matrix units busy; larger ones gain a few per cent on a GPU
/// (see plan/card_time.h), and on a CPU fall out of its caches.
inline constexpr std::int64_t kUsualMicroTokensCuda = 8192;
inline constexpr std::int64_t kUsualMicroTokensCpu = 2048;

/// The micro-batch of `batch.micro_tokens: auto`: `usual`, halved until `fits` says yes, the longest row
/// alone fills it, or it is at most 512. `fits` was asked of the answer last.
std::int64_t automatic_micro_tokens(std::int64_t usual, std::int64_t longest,
                                    const std::function<bool(std::int64_t)>& fits);

/// All that it may come to, ascending.
std::vector<std::int64_t> automatic_sizes(std::int64_t usual, std::int64_t longest);

/// What auto comes to on a device.
struct AutomaticMicro {
  std::int64_t tokens = 0;
  std::int64_t of_kind = 0;  ///< on any device of this kind that nothing else uses; `tokens` may be less
};

/// The number by the memory that a device of this kind has (`of_kind` bytes), so that a run anywhere on such
/// devices computes the same bits; less only where a step doesn't fit into what is `free` now. need(tokens):
/// bytes of a step. An empty limit holds everything.
AutomaticMicro automatic_micro_tokens(std::int64_t usual, std::int64_t longest,
                                      const std::function<std::int64_t(std::int64_t)>& need,
                                      std::optional<std::int64_t> of_kind, std::optional<std::int64_t> free);

}  // namespace lorikeet::plan
