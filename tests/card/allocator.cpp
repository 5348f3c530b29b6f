// The card's allocator, in the slot that libtorch_cuda's caching allocator takes.
#include "card/allocator.h"

#include <cstring>

#include "card/memory.h"

namespace lorikeet::card {
namespace {

class CardAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(current_card()));
    if (bytes == 0) return {nullptr, nullptr, &release, device};
    void* data = card::allocate(bytes, current_card());
    return {data, data, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(on_card(to), on_card(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = used_bytes(device);
    stats.allocated_bytes[0].peak = peak_bytes(device);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { reset_peak(device); }
};

CardAllocator the_allocator;
[[maybe_unused]] const bool registered = (c10::SetAllocator(at::kCUDA, &the_allocator), true);

}  // namespace

c10::DeviceAllocator& allocator() { return the_allocator; }

}  // namespace lorikeet::card
