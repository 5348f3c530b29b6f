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

}  // namespace lorikeet::plan
