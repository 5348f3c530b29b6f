#pragma once

#include <cstdint>
#include <optional>

#include "card/streams.h"

namespace lorikeet::card {

/// A stream as kernels are launched on it. As with CUDA a null pointer is the default stream of the current
/// card, whichever that is at the launch.
inline void* native_handle(StreamKey stream) {
  // A handle, which nobody follows.
  if (id_of(stream) == 0) return nullptr;
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(stream));  // NOLINT(performance-no-int-to-ptr)
}
inline StreamKey stream_of_handle(void* handle) {
  return handle == nullptr ? stream_key(current_card(), 0)
                           : static_cast<StreamKey>(reinterpret_cast<std::intptr_t>(handle));
}

}  // namespace lorikeet::card
