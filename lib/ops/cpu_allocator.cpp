#include "ops/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>

namespace lorikeet::ops {
namespace {

constexpr std::size_t kHugePage = kCpuAllocatorRules.block_bytes;
constexpr std::size_t kSmallAlignment = 64;
constexpr std::size_t kSlackPart = kCpuAllocatorRules.slack_part;

std::size_t most_kept(std::size_t used) {
  return static_cast<std::size_t>(kCpuAllocatorRules.most_kept(static_cast<std::int64_t>(used)));
}

std::size_t round_up(std::size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

// `bytes` (whole huge pages) of fresh memory that begin on a huge page's border, of which `asked` will be
// used.
void* map_block(std::size_t bytes, std::size_t asked) {
  void* raw = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const std::size_t before = round_up(begin) - begin, behind = kHugePage - before;
  char* const block = static_cast<char*>(raw) + before;
  if (before > 0) munmap(raw, before);
  if (behind > 0) munmap(block + bytes, behind);
  // Only a hint. What lies behind the last whole huge page stays in small ones, so that no unused part is
  // resident.
  madvise(block, asked / kHugePage * kHugePage, MADV_HUGEPAGE);
  return block;
}

class Allocator final : public c10::Allocator {
 public:
  static Allocator& instance() {
    static Allocator* const allocator = new Allocator;  // outlives every tensor
    return *allocator;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes < kHugePage ? small(bytes) : large(bytes);
    return {data, data, &release, at::Device(at::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  CpuMemory memory() const {
    const std::lock_guard lock(mutex_);
    return {used_bytes_, kept_bytes_};
  }

 private:
  struct Block {
    void* data;
    std::size_t bytes;
  };
  using Kept = std::list<Block>;  // oldest first

  static void* small(std::size_t bytes) {
    void* data = nullptr;
    if (bytes > 0 && posix_memalign(&data, kSmallAlignment, bytes) != 0) throw std::bad_alloc();
    return data;
  }

  void* large(std::size_t asked) {
    const std::size_t bytes = round_up(asked);
    const std::lock_guard lock(mutex_);
    // The smallest kept block that holds it; one much larger waits for a tensor of its own size.
    const auto found = by_size_.lower_bound(bytes);
    Block block{nullptr, bytes};
    if (found != by_size_.end() && found->first <= bytes + bytes / kSlackPart) {
      block = *found->second;
      kept_bytes_ -= block.bytes;
      kept_.erase(found->second);
      by_size_.erase(found);
    } else {
      block.data = map_block(bytes, asked);
    }
    used_.emplace(block.data, block.bytes);
    used_bytes_ += block.bytes;
    return block.data;
  }

  static void release(void* data) { instance().free(data); }

  void free(void* data) {
    // Large blocks begin on a huge page's border; hardly anything else does.
    if (data == nullptr || reinterpret_cast<std::uintptr_t>(data) % kHugePage != 0 || !keep(data))
      std::free(data);
  }

  // False when `data` is no large block.
  bool keep(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(data);
    if (found == used_.end()) return false;
    const std::size_t bytes = found->second;
    used_.erase(found);
    used_bytes_ -= bytes;
    kept_bytes_ += bytes;
    by_size_.emplace(bytes, kept_.insert(kept_.end(), {data, bytes}));
    while (kept_bytes_ > most_kept(used_bytes_)) drop_oldest();
    return true;
  }

  void drop_oldest() {
    const Kept::iterator oldest = kept_.begin();
    auto entry = by_size_.lower_bound(oldest->bytes);
    while (entry->second != oldest) ++entry;
    by_size_.erase(entry);
    munmap(oldest->data, oldest->bytes);
    kept_bytes_ -= oldest->bytes;
    kept_.erase(oldest);
  }

  mutable std::mutex mutex_;
  std::unordered_map<void*, std::size_t> used_;
  Kept kept_;
  std::multimap<std::size_t, Kept::iterator> by_size_;
  std::size_t used_bytes_ = 0;
  std::size_t kept_bytes_ = 0;
};

}  // namespace

void install_cpu_allocator() { c10::SetCPUAllocator(&Allocator::instance(), /*priority=*/100); }

CpuMemory cpu_memory() { return Allocator::instance().memory(); }

}  // namespace lorikeet::ops
