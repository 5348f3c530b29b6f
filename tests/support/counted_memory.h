#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

namespace lorikeet::test {

/// While one lives, the bytes of CPU tensors made since are counted.
class CountedMemory {
 public:
  CountedMemory() : before_(c10::GetCPUAllocator()) {
    allocator().reset();
    c10::SetCPUAllocator(&allocator(), kPriority);
  }
  ~CountedMemory() { c10::SetCPUAllocator(before_, kPriority); }
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  /// The most that were in use at a time.
  std::int64_t peak_bytes() const { return allocator().peak(); }

 private:
  class Allocator final : public c10::Allocator {
   public:
    c10::DataPtr allocate(std::size_t bytes) override {
      // The size stands before the tensor's memory.
      auto* block = static_cast<char*>(std::aligned_alloc(kAlignment, (bytes / kAlignment + 2) * kAlignment));
      if (block == nullptr) throw std::bad_alloc();
      *reinterpret_cast<std::size_t*>(block) = bytes;
      add(static_cast<std::int64_t>(bytes));
      return {block + kAlignment, block + kAlignment, &give_back, at::Device(at::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
      default_copy_data(to, from, bytes);
    }
    void add(std::int64_t bytes) {
      const std::lock_guard lock(mutex_);
      now_ += bytes;
      peak_ = std::max(peak_, now_);
    }
    void reset() {
      const std::lock_guard lock(mutex_);
      now_ = peak_ = 0;
    }
    std::int64_t peak() {
      const std::lock_guard lock(mutex_);
      return peak_;
    }

   private:
    std::mutex mutex_;
    std::int64_t now_ = 0, peak_ = 0;
  };

  static constexpr std::size_t kAlignment = 64;

  static void give_back(void* data) {
    if (data == nullptr) return;
    auto* block = static_cast<char*>(data) - kAlignment;
    allocator().add(-static_cast<std::int64_t>(*reinterpret_cast<std::size_t*>(block)));
    std::free(block);
  }

  static Allocator& allocator() {
    static auto* const one = new Allocator;  // outlives every tensor
    return *one;
  }
  // That of ops::install_cpu_allocator: c10 takes an allocator whose priority isn't below the last one's.
  static constexpr std::uint8_t kPriority = 100;

  c10::Allocator* before_;
};

}  // namespace lorikeet::test
