#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lorikeet::text {

/// A hash map from 64-bit keys to 64-bit values with open addressing in one array: filled once, then only
/// read, by any number of threads. The key ~0 is reserved for empty slots.
class FlatMap {
 public:
  FlatMap() : slots_(16) {}

  void reserve(std::size_t count) {
    const std::size_t wanted = std::bit_ceil(count * 2 + 16);
    if (wanted > slots_.size()) rehash(wanted);
  }

  /// Sets the value of `key`, new or known.
  void set(std::uint64_t key, std::uint64_t value) {
    if ((size_ + 1) * 2 > slots_.size()) rehash(slots_.size() * 2);
    Slot& slot = slots_[position(key)];
    if (slot.key == kEmpty) ++size_;
    slot = {key, value};
  }

  /// The value of `key`, or nullptr.
  const std::uint64_t* find(std::uint64_t key) const {
    const Slot& slot = slots_[position(key)];
    return slot.key == kEmpty ? nullptr : &slot.value;
  }

  std::size_t size() const { return size_; }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    std::uint64_t value = 0;
  };

  // Where `key` is, or the empty slot where it would go. The table is at most half full, so this ends.
  std::size_t position(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::uint64_t hash = key * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
    std::size_t at = hash & mask;
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask;
    return at;
  }

  void rehash(std::size_t capacity) {
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slots_[position(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace lorikeet::text
