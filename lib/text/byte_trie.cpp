#include "text/byte_trie.h"

namespace lorikeet::text {

ByteTrie::ByteTrie() : values_(1, kNone) { first_.fill(kNone); }

void ByteTrie::insert(std::string_view key, std::uint32_t value) {
  Node node = kRoot;
  for (const char byte : key) {
    Node next = child(node, byte);
    if (next == kNone) {
      next = static_cast<Node>(values_.size());
      values_.push_back(kNone);
      const auto index = static_cast<unsigned char>(byte);
      if (node == kRoot) {
        first_[index] = next;
      } else {
        edges_.set(std::uint64_t{node} << 8 | index, next);
      }
    }
    node = next;
  }
  values_[node] = value;
}

}  // namespace lorikeet::text
