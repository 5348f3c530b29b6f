#include "plan/tape.h"

#include <algorithm>
#include <numeric>

#include "ops/cpu_allocator.h"

namespace lorikeet::plan {
namespace {

constexpr auto kRules = ops::kCpuAllocatorRules;

std::int64_t whole_blocks(std::int64_t bytes) {
  return (bytes + kRules.block_bytes - 1) / kRules.block_bytes * kRules.block_bytes;
}

}  // namespace

std::int64_t MemoryMoment::total() const {
  return std::accumulate(used.begin(), used.end(), std::int64_t{0}) + kept;
}

Tape::Block Tape::take(Part part, std::int64_t bytes) {
  std::int64_t held = 0;  // of a large block, whole
  if (allocator_ == Allocator::kCpu && bytes >= kRules.block_bytes) {
    held = reuse(whole_blocks(bytes));
    large_used_ += held;
  }
  now_.used[static_cast<std::size_t>(part)] += bytes;
  note_peak();
  // The pointer is only counted, never looked at.
  return {static_cast<const void*>(this),
          [this, part, bytes, held](const void*) { give_back(part, bytes, held); }};
}

// The size of the block that serves `bytes`: the smallest free one that holds it and isn't much larger, else
// a new one.
std::int64_t Tape::reuse(std::int64_t bytes) {
  auto best = kept_.end();
  for (auto block = kept_.begin(); block != kept_.end(); ++block) {
    const bool fits = *block >= bytes && *block <= bytes + bytes / kRules.slack_part;
    if (fits && (best == kept_.end() || *block < *best)) best = block;
  }
  if (best == kept_.end()) return bytes;
  const std::int64_t found = *best;
  now_.kept -= found;
  kept_.erase(best);
  return found;
}

void Tape::give_back(Part part, std::int64_t bytes, std::int64_t held) {
  now_.used[static_cast<std::size_t>(part)] -= bytes;
  if (held == 0) return;
  large_used_ -= held;
  kept_.push_back(held);
  now_.kept += held;
  while (now_.kept > kRules.most_kept(large_used_)) {
    now_.kept -= kept_.front();
    kept_.pop_front();
  }
  note_peak();
}

void Tape::note_peak() {
  if (now_.total() > peak_.total()) peak_ = now_;
}

}  // namespace lorikeet::plan
