#include "ops/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

namespace lorikeet::ops {
namespace {

constexpr std::size_t kSmallAlignment = 64;

class Kernel final : public BlockPool::Source {
 public:
  // Fresh memory that begins at a multiple of its granule.
  void* map(std::size_t bytes, std::size_t asked) override {
    const std::size_t granule = kBlockRules.granule(asked);
    void* raw = mmap(nullptr, bytes + granule, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc();
    const auto begin = reinterpret_cast<std::uintptr_t>(raw);
    const std::size_t before = (granule - begin % granule) % granule, behind = granule - before;
    char* const block = static_cast<char*>(raw) + before;
    if (before > 0) munmap(raw, before);
    if (behind > 0) munmap(block + bytes, behind);
    // Only a hint. What lies behind the last whole huge page stays in small ones, so that no unused part is
    // resident.
    constexpr std::size_t kHugePage = kBlockRules.huge_page_bytes;
    if (asked >= kHugePage) madvise(block, asked / kHugePage * kHugePage, MADV_HUGEPAGE);
    return block;
  }
  void unmap(void* block, std::size_t bytes) override { munmap(block, bytes); }
};

class Allocator final : public c10::Allocator {
 public:
  static Allocator& instance() {
    static Allocator* const allocator = new Allocator;  // outlives every tensor
    return *allocator;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes < kBlockRules.least_bytes ? small(bytes) : large(bytes);
    return {data, data, &release, at::Device(at::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  PoolMemory memory() const {
    const std::lock_guard lock(mutex_);
    return pool_.memory();
  }

  void drop_kept() {
    const std::lock_guard lock(mutex_);
    pool_.drop_kept();
  }

 private:
  static void* small(std::size_t bytes) {
    void* data = nullptr;
    if (bytes > 0 && posix_memalign(&data, kSmallAlignment, bytes) != 0) throw std::bad_alloc();
    return data;
  }

  void* large(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    return pool_.take(bytes);
  }

  bool keep(void* data) {
    const std::lock_guard lock(mutex_);
    return pool_.give_back(data);
  }

  static void release(void* data) {
    // Blocks begin at multiples of a granule; hardly anything else does.
    const bool maybe_large =
        data != nullptr && reinterpret_cast<std::uintptr_t>(data) % kBlockRules.granule_bytes == 0;
    if (!maybe_large || !instance().keep(data)) std::free(data);
  }

  mutable std::mutex mutex_;
  Kernel kernel_;
  BlockPool pool_{kernel_};
};

}  // namespace

void install_cpu_allocator() { c10::SetCPUAllocator(&Allocator::instance(), /*priority=*/100); }

PoolMemory cpu_memory() { return Allocator::instance().memory(); }

void release_free_blocks() { Allocator::instance().drop_kept(); }

}  // namespace lorikeet::ops
