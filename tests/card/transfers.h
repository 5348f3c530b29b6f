#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <vector>

#include "card/streams.h"

// Pinned host memory, and the copies between it and a card that the host hasn't waited for.
namespace lorikeet::card {

c10::Allocator& pinned_allocator();
bool is_pinned(const void* data);

/// The card reads `bytes` at `host` at some time before the host waits for `stream`: a hazard is counted when
/// they have changed by then.
void begin_upload(StreamKey stream, const void* host, std::size_t bytes);
/// The card writes `content` to `host` when the host waits for `stream`; NaN stands there until then. A
/// hazard is counted when the memory is freed or written earlier.
void begin_download(StreamKey stream, void* host, std::vector<char> content);

/// A copy to the card on `stream` reads `bytes` at `host`: finishes the copies from the card to that memory
/// which the stream's work comes after. A hazard is counted for any other.
void read_downloads(StreamKey stream, const void* host, std::size_t bytes);

/// The host has waited for all work that `known` covers: finishes the transfers among it.
void finish_transfers(const Clock& known);
void finish_all_transfers();

}  // namespace lorikeet::card
