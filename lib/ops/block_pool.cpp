#include "ops/block_pool.h"

namespace lorikeet::ops {

void* BlockPool::take(std::size_t asked) {
  const std::size_t bytes = kBlockRules.whole(asked);
  // The smallest waiting block that holds it; one much larger waits for a tensor of its own size.
  const auto found = by_size_.lower_bound(bytes);
  Block block{nullptr, bytes, 0};
  if (found != by_size_.end() && found->first <= bytes + bytes / kBlockRules.slack_part) {
    block = *found->second;
    memory_.kept -= block.bytes;
    kept_.erase(found->second);
    by_size_.erase(found);
  } else {
    block.data = source_.map(bytes, asked);
  }
  if (asked > block.resident) {
    memory_.resident += asked - block.resident;
    block.resident = asked;
  }
  memory_.used += block.bytes;
  used_.emplace(block.data, block);
  return block.data;
}

bool BlockPool::give_back(void* data) {
  const auto found = used_.find(data);
  if (found == used_.end()) return false;
  const Block block = found->second;
  used_.erase(found);
  memory_.used -= block.bytes;
  memory_.kept += block.bytes;
  by_size_.emplace(block.bytes, kept_.insert(kept_.end(), block));
  while (memory_.kept > kBlockRules.most_kept(memory_.used)) drop_oldest();
  return true;
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
