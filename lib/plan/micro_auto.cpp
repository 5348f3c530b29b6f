#include "plan/micro_auto.h"

namespace lorikeet::plan {
namespace {

constexpr std::int64_t kLeastTokens = 512;  // fewer leave a device idle

}  // namespace

std::int64_t automatic_micro_tokens(std::int64_t usual, std::int64_t longest,
                                    const std::function<bool(std::int64_t)>& fits) {
  std::int64_t tokens = usual;
  while (!fits(tokens) && tokens > kLeastTokens && tokens > longest) tokens /= 2;
  return tokens;
}

std::vector<std::int64_t> automatic_sizes(std::int64_t usual, std::int64_t longest) {
  std::vector<std::int64_t> sizes;
  automatic_micro_tokens(usual, longest, [&](std::int64_t tokens) {
    sizes.insert(sizes.begin(), tokens);
    return false;
  });
  return sizes;
}

AutomaticMicro automatic_micro_tokens(std::int64_t usual, std::int64_t longest,
                                      const std::function<std::int64_t(std::int64_t)>& need,
                                      std::optional<std::int64_t> of_kind, std::optional<std::int64_t> free) {
  const auto within = [&](std::int64_t most, std::optional<std::int64_t> limit) {
    return automatic_micro_tokens(most, longest,
                                  [&](std::int64_t tokens) { return !limit || need(tokens) <= *limit; });
  };
  const std::int64_t stable = within(usual, of_kind);
  return {.tokens = within(stable, free), .of_kind = stable};
}

}  // namespace lorikeet::plan
