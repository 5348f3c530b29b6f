#include "text/word_cache.h"

#include <algorithm>
#include <atomic>

namespace lorikeet::text {

WordCache& WordCache::of_thread() {
  thread_local WordCache cache;
  return cache;
}

std::uint32_t WordCache::new_owner() {
  static std::atomic<std::uint32_t> next{1};
  return next.fetch_add(1);
}

void WordCache::store(std::uint32_t owner, std::string_view word, std::span<const TokenId> ids) {
  if (word.size() > kMaxBytes || ids.size() > kMaxIds) return;
  Slot& slot = slots_[index(owner, word)];
  slot.owner = owner;
  slot.length = static_cast<std::uint8_t>(word.size());
  slot.count = static_cast<std::uint8_t>(ids.size());
  std::copy(word.begin(), word.end(), slot.word.begin());
  std::copy(ids.begin(), ids.end(), slot.ids.begin());
}

}  // namespace lorikeet::text
