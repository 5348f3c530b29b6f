#include "comm/stream_order.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lorikeet::comm {

StreamOrder::Wait StreamOrder::start(const c10::Device& device, const std::function<Wait()>& start) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream compute = guard.getStream(device);
  if (!stream_) stream_ = guard.getNewStream(device);
  c10::Event inputs_ready(device.type());
  inputs_ready.record(compute);
  inputs_ready.block(*stream_);
  const c10::StreamGuard on_order_stream(*stream_);
  Wait wait = start();
  wait();
  return wait;
}

}  // namespace lorikeet::comm
