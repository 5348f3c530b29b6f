#include "card/host_kernel.h"

#include <string>

#include "base/error.h"
#include "card/memory.h"
#include "card/native_stream.h"
#include "card/report.h"
#include "card/traffic.h"

namespace lorikeet::card {
namespace {

constexpr unsigned kMostThreads = 1024, kMostThreadsZ = 64, kMostBlocksYZ = 65535;
constexpr std::size_t kMostShared = std::size_t{48} << 10;

unsigned volume(const dim3& size) { return size.x * size.y * size.z; }

void check_sizes(const dim3& grid, const dim3& block, std::size_t shared_bytes, const char* file) {
  const bool empty = grid.x == 0 || grid.y == 0 || grid.z == 0 || volume(block) == 0;
  if (!empty && volume(block) <= kMostThreads && block.z <= kMostThreadsZ && grid.y <= kMostBlocksYZ &&
      grid.z <= kMostBlocksYZ && shared_bytes <= kMostShared) {
    return;
  }
  const auto text = [](const dim3& size) {
    return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
  };
  throw Error(std::string("[") + file + "] expected a launch that a card takes, got a grid of " + text(grid) +
                  " blocks of " + text(block) + " threads with " + std::to_string(shared_bytes) +
                  " bytes of shared memory: invalid configuration argument",
              ErrorKind::kRunFailed);
}

void run_block(const std::function<void()>& thread) {
  uint3& index = kernel_index.thread;
  const dim3& size = kernel_index.block_size;
  for (index.z = 0; index.z < size.z; ++index.z) {
    for (index.y = 0; index.y < size.y; ++index.y) {
      for (index.x = 0; index.x < size.x; ++index.x) thread();
    }
  }
}

}  // namespace

thread_local KernelIndex kernel_index;

void* kernel_argument(const void* data, bool writes, void* stream, const char* file) {
  if (data == nullptr) return nullptr;
  const Lock lock(mutex());
  const Block* block = block_of(data);
  if (block == nullptr) {
    count_hazard(std::string(file) + ": a kernel is given an address that is no allocated card memory");
  } else if (block->card != current_card()) {
    count_hazard(std::string(file) +
                 ": a kernel is launched while another card than its memory's is current");
  }
  note_access(data, writes, stream_of_handle(stream), file);
  return on_card(data);
}

void run_kernel(const dim3& grid, const dim3& block, std::size_t shared_bytes, void* stream, const char* file,
                Threads threads, const std::function<void()>& thread) {
  check_sizes(grid, block, shared_bytes, file);
  const Lock lock(mutex());
  if (!replays()) {
    ++report().kernels[file];
    ++report().launches;
  }
  if (stream_of_handle(stream) != current_stream(current_card())) {
    count_hazard(std::string(file) + ": a kernel is launched on another stream than the current one");
  }
  kernel_index.block_size = block;
  kernel_index.grid_size = grid;
  const LaunchTraffic traffic(file);
  uint3& index = kernel_index.block;
  for (index.z = 0; index.z < grid.z; ++index.z) {
    for (index.y = 0; index.y < grid.y; ++index.y) {
      for (index.x = 0; index.x < grid.x; ++index.x) {
        if (threads == Threads::kTogether) {
          run_fibers(block, thread);
        } else {
          run_block(thread);
        }
      }
    }
  }
}

}  // namespace lorikeet::card

// A launch that the card refuses has thrown already.
extern "C" cudaError_t cudaGetLastError() { return cudaSuccess; }
extern "C" const char* cudaGetErrorString(cudaError_t) { return "no error"; }
