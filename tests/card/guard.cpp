// Devices, streams and events, in the slots that libtorch_cuda's guard and hooks take.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <utility>

#include "card/allocator.h"
#include "card/memory.h"
#include "card/native_stream.h"
#include "card/report.h"
#include "card/streams.h"
#include "card/transfers.h"

namespace lorikeet::card {
namespace {

struct Event {
  Clock clock;
  std::int64_t launch = 0;  // the last one before it
  // Work is done when it has been launched, so that the host's clock is the card's.
  std::chrono::steady_clock::time_point time;
};

StreamKey key_of(const c10::Stream& stream) { return stream_key(stream.device_index(), stream.id()); }
c10::Stream stream_of(StreamKey key) {
  const c10::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(card_of(key)));
  return c10::Stream(c10::Stream::UNSAFE, device, id_of(key));
}

// CUDA's guard makes the stream's card current, and then again the one that was: on both there is a context.
void use_contexts(const c10::Stream& stream) {
  const Lock lock(mutex());
  report().contexts.insert({current_card(), stream.device_index()});
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return {at::kCUDA, static_cast<c10::DeviceIndex>(current_card())};
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() >= 0 && device.index() < kCards, "fake card: there is no ", device);
    set_current_card(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_card(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return kCards; }

  c10::Stream getStream(c10::Device device) const override {
    return stream_of(current_stream(device.index() < 0 ? current_card() : device.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return stream_of(new_stream(device.index()));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    set_current_stream(key_of(stream));
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return native_handle(key_of(stream));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    use_contexts(stream);
    if (*event == nullptr) *event = new Event;
    *static_cast<Event*>(*event) = {record_event(key_of(stream)), report().launches,
                                    std::chrono::steady_clock::now()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    use_contexts(stream);
    if (event != nullptr) wait_for_event(key_of(stream), static_cast<Event*>(event)->clock);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(end)->time -
                                                     static_cast<Event*>(begin)->time)
        .count();
  }

  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    count_wait("synchronizeStream");
    finish_transfers(known_after(key_of(stream)));
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    const auto& recorded = *static_cast<Event*>(event);
    count_wait("synchronizeEvent", recorded.launch);
    finish_transfers(recorded.clock);
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    count_wait("synchronizeDevice");
    finish_all_transfers();
  }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard);

}  // namespace

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  at::DeviceIndex deviceCount() const override { return kCards; }
  int getNumGPUs() const override { return kCards; }
  at::DeviceIndex current_device() const override { return static_cast<at::DeviceIndex>(current_card()); }
  at::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(at::DeviceIndex card) const override { set_current_card(card); }
  at::DeviceIndex exchangeDevice(at::DeviceIndex card) const override {
    const at::DeviceIndex before = current_device();
    set_current_card(card);
    return before;
  }
  at::DeviceIndex maybeExchangeDevice(at::DeviceIndex card) const override {
    return card < 0 ? current_device() : exchangeDevice(card);
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  at::Allocator* getCUDADeviceAllocator() const override { return &allocator(); }
  at::Device getDeviceFromPtr(void* data) const override {
    const Block* block = block_of(data);
    return {at::kCUDA, static_cast<at::DeviceIndex>(block == nullptr ? 0 : block->card)};
  }
  void deviceSynchronize(at::DeviceIndex) const override {
    count_wait("deviceSynchronize");
    finish_all_transfers();
  }
};

}  // namespace lorikeet::card

namespace at {
using FakeCardHooks = lorikeet::card::Hooks;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, FakeCardHooks)
}  // namespace at
