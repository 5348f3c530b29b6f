#include "ops/own_stream.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>

namespace lorikeet::ops {
namespace {

void order(const c10::Stream& first, const c10::Stream& second) {
  c10::Event between(first.device_type());
  between.record(first);
  between.block(second);
}

}  // namespace

OwnStream::OwnStream(const at::Device& device) {
  if (!device.is_cuda()) return;
  const c10::Stream own = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  guard_.emplace(own);
  order(guard_->original_stream(), own);
}

OwnStream::~OwnStream() {
  if (!guard_) return;
  try {
    order(guard_->current_stream(), guard_->original_stream());
  } catch (const std::exception&) {
    // The GPU has failed: what threw first says so.
  }
}

}  // namespace lorikeet::ops
