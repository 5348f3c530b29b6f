#include "ops/block_pool.h"

#include <algorithm>

namespace lorikeet::ops {

void* BlockPool::take(std::size_t asked) {
  const std::size_t bytes = kBlockRules.whole(asked);
  most_asked_ = std::max(most_asked_, asked_ + asked);
  // The smallest waiting block that holds it; one much larger waits for a tensor of its own size.
  const auto found = by_size_.lower_bound(bytes);
  Block block{nullptr, bytes, 0};
  if (found != by_size_.end() && found->first <= bytes + bytes / kBlockRules.slack_part) {
    block = *found->second;
    memory_.kept -= block.bytes;
    kept_.erase(found->second);
    by_size_.erase(found);
    make_room(std::max(asked, block.resident) - block.resident);
  } else {
    make_room(asked);
    block.data = source_.map(bytes, asked);
  }
  if (asked > block.resident) {
    memory_.resident += asked - block.resident;
    block.resident = asked;
  }
  block.asked = asked;
  asked_ += asked;
  memory_.used += block.bytes;
  used_.emplace(block.data, block);
  return block.data;
}

bool BlockPool::give_back(void* data) {
  const auto found = used_.find(data);
  if (found == used_.end()) return false;
  const Block block = found->second;
  used_.erase(found);
  asked_ -= block.asked;
  memory_.used -= block.bytes;
  memory_.kept += block.bytes;
  by_size_.emplace(block.bytes, kept_.insert(kept_.end(), block));
  make_room(0);
  return true;
}

void BlockPool::drop_kept() {
  while (!kept_.empty()) drop_oldest();
  most_asked_ = asked_;
}

void BlockPool::make_room(std::size_t bytes) {
  const std::size_t most = most_asked_ + kBlockRules.most_kept(most_asked_);
  while (!kept_.empty() && memory_.resident + bytes > most) drop_oldest();
}

void BlockPool::drop_oldest() {
  const Kept::iterator oldest = kept_.begin();
  auto entry = by_size_.lower_bound(oldest->bytes);
  while (entry->second != oldest) ++entry;
  by_size_.erase(entry);
  source_.unmap(oldest->data, oldest->bytes);
  memory_.kept -= oldest->bytes;
  memory_.resident -= oldest->resident;
  kept_.erase(oldest);
}

}  // namespace lorikeet::ops
