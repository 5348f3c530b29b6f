#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

// The threads of a block as fibers of one host thread, for kernels whose threads share memory, wait for each
// other or exchange values. A warp runs until all its threads wait at a barrier or have ended, then the next
// one: so a warp that needn't wait for the others is as far ahead of them as it can be, and a missing barrier
// shows in the numbers.
namespace lorikeet::card {

/// Where in a .cu file a thread waits.
struct Place {
  const char* file = "";
  int line = 0;
  static Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

/// Runs `thread` as all threads of one block; `kernel_index` names the block. Throws Error where threads wait
/// for others that never come, at a warp operation that CUDA leaves undefined, and for more shared memory
/// than a block has.
void run_fibers(const dim3& size, const std::function<void()>& thread);

/// __syncthreads of the running thread.
void wait_for_block(Place place);

/// Waits for all lanes of `mask` to call this, then gives the bits that each lane of the warp passed.
const std::uint64_t* exchange(unsigned mask, std::uint64_t bits, Place place);

/// The running thread's place in its warp.
unsigned lane();

/// Throws Error with the place and the running thread.
[[noreturn]] void fail_thread(const char* what, Place place);

/// Begins to copy 16 bytes, both sides aligned to that, into shared memory; zeros unless `is_there`. The
/// place holds NaN until the running thread waits for the copy: it arrives as late as it may, and what was
/// there is lost as early as it may be.
void begin_copy(void* shared, const void* from, bool is_there);

/// Ends a group of the running thread's copies: those since the last group.
void end_copies();

/// Waits until at most `groups` of the running thread's groups are under way.
void wait_for_copies(int groups);

/// The block's variable of a site: `bytes` bytes, which hold NaN until they are written.
void* shared_memory(const void* site, std::size_t bytes);

/// What `__shared__ T name;` becomes; every lambda has a type of its own.
template <typename T, typename Site>
T& shared_variable(Site /*site*/) {
  static_assert(std::is_trivially_default_constructible_v<T>);
  static const char site = 0;
  return *static_cast<T*>(shared_memory(&site, sizeof(T)));
}

template <typename T>
T shuffle(unsigned mask, T value, unsigned source, Place place) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
  if ((mask >> source & 1U) == 0) fail_thread("a shuffle reads a lane that isn't in its mask", place);
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  const std::uint64_t* all = exchange(mask, bits, place);
  __builtin_memcpy(&value, &all[source], sizeof(T));
  return value;
}

}  // namespace lorikeet::card

// CUDA's names and signatures. A source outside of the lane's part of `width` lanes is the lane itself.
// NOLINTBEGIN(bugprone-reserved-identifier)
inline void __syncthreads(lorikeet::card::Place place = lorikeet::card::Place::here()) {
  lorikeet::card::wait_for_block(place);
}
inline void __syncwarp(unsigned mask = ~0U, lorikeet::card::Place place = lorikeet::card::Place::here()) {
  lorikeet::card::exchange(mask, 0, place);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  lorikeet::card::Place place = lorikeet::card::Place::here()) {
  const unsigned lane = lorikeet::card::lane(), source = lane ^ static_cast<unsigned>(lanes);
  const auto part = static_cast<unsigned>(width);
  return lorikeet::card::shuffle(mask, value, source / part <= lane / part ? source : lane, place);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                   lorikeet::card::Place place = lorikeet::card::Place::here()) {
  const unsigned lane = lorikeet::card::lane(), part = static_cast<unsigned>(width);
  return lorikeet::card::shuffle(mask, value, lane % part + by < part ? lane + by : lane, place);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32,
              lorikeet::card::Place place = lorikeet::card::Place::here()) {
  const unsigned lane = lorikeet::card::lane(), part = static_cast<unsigned>(width);
  return lorikeet::card::shuffle(mask, value, lane / part * part + static_cast<unsigned>(from) % part, place);
}
// NOLINTEND(bugprone-reserved-identifier)
