#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/flat_map.h"

namespace lorikeet::text {

/// A set of byte strings, each with a number, for walking text byte by byte: filled once, then only read.
class ByteTrie {
 public:
  using Node = std::uint32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = ~Node{0};

  ByteTrie();

  /// Adds `key`, which must not be empty; a key that is known takes the new value.
  void insert(std::string_view key, std::uint32_t value);

  /// The node behind `node` for `byte`, or kNone.
  Node child(Node node, char byte) const {
    const auto index = static_cast<unsigned char>(byte);
    if (node == kRoot) return first_[index];
    const std::uint64_t* next = edges_.find(std::uint64_t{node} << 8 | index);
    return next == nullptr ? kNone : static_cast<Node>(*next);
  }

  /// The value of the key that ends at `node`, if one does.
  std::optional<std::uint32_t> value(Node node) const {
    return values_[node] == kNone ? std::nullopt : std::optional(values_[node]);
  }

  /// True if some key starts with `byte`.
  bool starts(char byte) const { return first_[static_cast<unsigned char>(byte)] != kNone; }
  bool empty() const { return values_.size() == 1; }

 private:
  std::array<Node, 256> first_;        // children of the root, which are asked for most
  FlatMap edges_;                      // (node, byte) -> node
  std::vector<std::uint32_t> values_;  // per node; kNone where no key ends
};

}  // namespace lorikeet::text
