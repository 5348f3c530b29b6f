#pragma once

#include <cstdint>
#include <optional>

#include "card/streams.h"

namespace lorikeet::card {

/// A stream as kernels are launched on it. As with CUDA a null pointer is the default stream of the current
/// card, whichever that is at the launch.
inline void* native_handle(StreamKey stream) {
  return id_of(stream) == 0 ? nullptr : reinterpret_cast<void*>(static_cast<std::intptr_t>(stream));
}
inline StreamKey stream_of_handle(void* handle) {
  return handle == nullptr ? stream_key(current_card(), 0)
                           : static_cast<StreamKey>(reinterpret_cast<std::intptr_t>(handle));
}

}  // namespace lorikeet::card
