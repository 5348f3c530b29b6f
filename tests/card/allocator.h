#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace lorikeet::card {

/// Allocates on the calling thread's current card.
c10::DeviceAllocator& allocator();

}  // namespace lorikeet::card
