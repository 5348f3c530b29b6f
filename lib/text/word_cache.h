#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lorikeet::text {

/// Remembers the ids of short words, one table a thread, shared by that thread's models. Direct-mapped: a
/// new word overwrites whatever has its slot, so the size is fixed (1 MiB a thread) and nothing is evicted
/// by search.
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 24;
  static constexpr std::size_t kMaxIds = 8;

  /// This thread's cache.
  static WordCache& of_thread();
  /// A number that no other model of this process has had, so that models don't see each other's words.
  static std::uint32_t new_owner();

  /// Appends the ids of `word` under `owner` to `out`; false if they aren't known.
  bool find(std::uint32_t owner, std::string_view word, std::vector<TokenId>& out) const {
    if (word.size() > kMaxBytes) return false;
    const Slot& slot = slots_[index(owner, word)];
    if (slot.owner != owner || slot.length != word.size() ||
        std::memcmp(slot.word.data(), word.data(), word.size()) != 0) {
      return false;
    }
    out.insert(out.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
    return true;
  }

  /// Remembers the ids of `word` if both are short enough.
  void store(std::uint32_t owner, std::string_view word, std::span<const TokenId> ids);

 private:
  struct Slot {
    std::uint32_t owner = 0;  // 0: empty
    std::uint8_t length = 0;
    std::uint8_t count = 0;
    std::array<char, kMaxBytes> word{};
    std::array<TokenId, kMaxIds> ids{};
  };
  static constexpr std::size_t kSlots = 16384;

  WordCache() : slots_(kSlots) {}

  static std::size_t index(std::uint32_t owner, std::string_view word) {
    std::uint64_t hash = std::uint64_t{owner} << 32 | word.size();
    std::size_t at = 0;
    for (; at + 8 <= word.size(); at += 8) {
      std::uint64_t chunk = 0;
      std::memcpy(&chunk, word.data() + at, 8);
      hash = (hash ^ chunk) * 0x9E3779B97F4A7C15;
      hash ^= hash >> 29;
    }
    std::uint64_t tail = 0;
    std::memcpy(&tail, word.data() + at, word.size() - at);
    hash = (hash ^ tail) * 0x9E3779B97F4A7C15;
    return (hash ^ hash >> 32) % kSlots;
  }

  std::vector<Slot> slots_;
};

}  // namespace lorikeet::text
