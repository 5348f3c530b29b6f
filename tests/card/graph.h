#pragma once

#include <functional>

// CUDA graphs: work that is recorded instead of done, and done when the graph is launched. Linked instead of
// lib/ops/device_graph.cpp.
namespace lorikeet::card {

/// Whether this thread's work is being recorded.
bool records();
/// Whether it is done by a graph's launch: then it counts as no launch of the host.
bool replays();

/// Keeps `work`, which has just been done with the memory as it is, for the graph that is recorded: what it
/// did is undone when the recording ends.
void keep_work(std::function<void()> work);

/// What CUDA answers to a host that would wait for the card in a recording: throws, and so will the
/// recording's end. Does nothing outside.
void refuse_in_recording(const char* what);

/// For the allocator: a block is allocated; a block is freed. True: it was allocated in the recording under
/// way, and the graph keeps it.
void note_allocated(const void* data);
bool keeps_freed(const void* data);

}  // namespace lorikeet::card
