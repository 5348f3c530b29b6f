#pragma once

// Runs CUDA kernels on the host: the threads of a launch follow each other in one loop. Enough for kernels
// whose threads share nothing; cuda_to_cpp.py, which turns a .cu file into C++ that uses this header, refuses
// the others. NVIDIA's own headers bring the vector types and the conversions of bf16 and fp16.
#include <cuda_runtime.h>
// After it: what it declares for device code alone.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>

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

/// Runs `thread` for each thread of the grid. Throws Error when a card would refuse the sizes. Counts a
/// hazard when `stream` isn't the current stream of the current card, where ATen's kernels run.
void run_kernel(const dim3& grid, const dim3& block, std::size_t shared_bytes, void* stream, const char* file,
                const std::function<void()>& thread);

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
template <typename... P>
auto launcher(const char* file, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes = 0,
              void* stream = nullptr) {
  return [=](std::type_identity_t<P>... arguments) {
    const std::tuple<P...> on_card(argument_on_card(arguments, stream, file)...);
    run_kernel(grid, block, shared_bytes, stream, file, [&] { std::apply(kernel, on_card); });
  };
}

}  // namespace lorikeet::card

// Products and sums that are never fused, as nothing is on the host. The names are CUDA's.
inline float __fmul_rn(float a, float b) { return a * b; }  // NOLINT(bugprone-reserved-identifier)
inline float __fadd_rn(float a, float b) { return a + b; }  // NOLINT(bugprone-reserved-identifier)

#define threadIdx (lorikeet::card::kernel_index.thread)
#define blockIdx (lorikeet::card::kernel_index.block)
#define blockDim (lorikeet::card::kernel_index.block_size)
#define gridDim (lorikeet::card::kernel_index.grid_size)
