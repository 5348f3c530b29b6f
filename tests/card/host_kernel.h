#pragma once

// Runs CUDA kernels on the host. The threads of a launch follow each other in one loop where they share
// nothing; where they work together those of a block are fibers (block_threads.h). cuda_to_cpp.py turns a .cu
// file into C++ that uses this header, and chooses. NVIDIA's own headers bring the vector types and the
// conversions of bf16 and fp16.
#include <cuda_runtime.h>
// After it: what it declares for device code alone.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <math.h>  // NOLINT(modernize-deprecated-headers): kernels call sqrtf and expf as global functions

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>

#include "card/block_threads.h"
#include "card/graph.h"

namespace lorikeet::card {

/// One thread of the launch under way.
struct KernelIndex {
  uint3 thread{}, block{};
  dim3 block_size, grid_size;
};
extern thread_local KernelIndex kernel_index;

/// Where the card finds a kernel's pointer argument. Counts a hazard when it isn't allocated memory of the
/// current card, or when another stream uses it without an event between them.
void* kernel_argument(const void* data, bool writes, void* stream, const char* file);

/// Whether a block's threads work together.
enum class Threads { kAlone, kTogether };

/// Runs `thread` for each thread of the grid. Throws Error when a card would refuse the sizes. Counts a
/// hazard when `stream` isn't the current stream of the current card, where ATen's kernels run.
void run_kernel(const dim3& grid, const dim3& block, std::size_t shared_bytes, void* stream, const char* file,
                Threads threads, const std::function<void()>& thread);

template <typename T>
T argument_on_card(T value, [[maybe_unused]] void* stream, [[maybe_unused]] const char* file) {
  if constexpr (std::is_pointer_v<T>) {
    constexpr bool kWrites = !std::is_const_v<std::remove_pointer_t<T>>;
    return static_cast<T>(kernel_argument(value, kWrites, stream, file));
  } else {
    return value;
  }
}

/// What `kernel<<<grid, block, shared_bytes, stream>>>(arguments...)` becomes.
template <Threads kThreads, typename... P>
auto launcher(const char* file, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes = 0,
              void* stream = nullptr) {
  return [=](std::type_identity_t<P>... arguments) {
    const auto run = [=] {
      const std::tuple<P...> on_card(argument_on_card(arguments, stream, file)...);
      run_kernel(grid, block, shared_bytes, stream, file, kThreads, [&] { std::apply(kernel, on_card); });
    };
    run();
    if (records()) keep_work(run);
  };
}

}  // namespace lorikeet::card

// Products and sums that are never fused, as nothing is on the host. The names are CUDA's.
inline float __fmul_rn(float a, float b) { return a * b; }  // NOLINT(bugprone-reserved-identifier)
inline float __fadd_rn(float a, float b) { return a + b; }  // NOLINT(bugprone-reserved-identifier)

/// A division that is faster on a card, and not exact there.
inline float __fdividef(float a, float b) { return a / b; }  // NOLINT(bugprone-reserved-identifier)

/// A store of one access.
template <typename T>
void __stwb(T* to, T value) {  // NOLINT(bugprone-reserved-identifier)
  *to = value;
}

// What the compiler for cards alone understands.
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline

#define threadIdx (lorikeet::card::kernel_index.thread)
#define blockIdx (lorikeet::card::kernel_index.block)
#define blockDim (lorikeet::card::kernel_index.block_size)
#define gridDim (lorikeet::card::kernel_index.grid_size)
