#include "ops/device_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lorikeet::ops {

DeviceClock::Mark DeviceClock::mark() const {
  Mark out{.host = std::chrono::steady_clock::now()};
  if (device_.is_cuda()) {
    // The flag that libtorch gives events with a time.
    out.event = std::make_shared<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    out.event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  return out;
}

double DeviceClock::seconds_between(const Mark& begin, const Mark& end) {
  constexpr double kMillisecond = 1e-3;
  if (begin.event && end.event) return begin.event->elapsedTime(*end.event) * kMillisecond;
  return std::chrono::duration<double>(end.host - begin.host).count();
}

}  // namespace lorikeet::ops
