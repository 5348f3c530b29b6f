#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>

namespace lorikeet::test {

/// While one lives, memory of CPU tensors is full of NaN (in every floating dtype) both when it is handed out
/// and once it is given back: what reads a tensor's elements before they are written, or after the tensor is
/// gone, computes NaN. Memory that was given back is reused only after kHeldBack more bytes.
class PoisonedMemory {
 public:
  PoisonedMemory() { c10::SetCPUAllocator(&allocator(), kPriority); }
  ~PoisonedMemory() { c10::SetCPUAllocator(before_, kPriority); }
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;

 private:
  class Allocator final : public c10::Allocator {
   public:
    c10::DataPtr allocate(std::size_t bytes) override {
      void* data = std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
      if (data == nullptr) throw std::bad_alloc();
      poison(data);
      return {data, data, &give_back, at::Device(at::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
      default_copy_data(to, from, bytes);
    }
  };

  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kHeldBack = std::size_t{64} << 20;

  // All bits set are NaN in fp64, fp32, fp16 and bf16.
  static void poison(void* data) { std::memset(data, 0xFF, malloc_usable_size(data)); }

  static void give_back(void* data) {
    static std::mutex mutex;
    static std::deque<void*> held;
    static std::size_t held_bytes = 0;
    if (data == nullptr) return;
    poison(data);
    const std::lock_guard lock(mutex);
    held.push_back(data);
    held_bytes += malloc_usable_size(data);
    while (held_bytes > kHeldBack) {
      held_bytes -= malloc_usable_size(held.front());
      std::free(held.front());
      held.pop_front();
    }
  }

  static Allocator& allocator() {
    static auto* const one = new Allocator;  // outlives every tensor
    return *one;
  }
  // That of ops::install_cpu_allocator: c10 takes an allocator whose priority isn't below the last one's.
  static constexpr std::uint8_t kPriority = 100;

  c10::Allocator* before_ = c10::GetCPUAllocator();
};

}  // namespace lorikeet::test
