// Mamba 2's state space, forward and backward with all their launches.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels.h"
#include "ops/state_space/state_space_cuda.h"

namespace lorikeet::bench {
namespace {

using ops::StateSpaceSizes;

constexpr auto kElement = ops::CudaElement::kBF16;
constexpr std::int64_t kBF16 = 2;  // bytes

struct OnDevice {
  OnDevice(DeviceMemory& memory, const StateSpaceSizes& sizes)
      : rows{.ends = ends_of(memory, sizes),
             .xbc = memory.bf16(sizes.tokens * width(sizes)),
             .dt = memory.bf16(sizes.tokens * sizes.heads),
             .dt_stride = sizes.heads,
             .a_log = memory.fp32(sizes.heads),
             .dt_bias = memory.fp32(sizes.heads),
             .d = memory.fp32(sizes.heads)},
        chunks{.decays = memory.fp32(sizes.slots() * sizes.heads * StateSpaceSizes::kDecays),
               .products = memory.fp32(sizes.slots() * sizes.groups * StateSpaceSizes::kChunk *
                                       StateSpaceSizes::kChunk)} {}

  static std::int64_t width(const StateSpaceSizes& sizes) {
    return sizes.heads * sizes.head_dim + 2 * sizes.groups * sizes.state_dim;
  }
  // One sequence's.
  static const int* ends_of(DeviceMemory& memory, const StateSpaceSizes& sizes) {
    const int ends[] = {0, static_cast<int>(sizes.tokens)};
    void* const on_device = memory.bytes(sizeof ends);
    check(cudaMemcpy(on_device, ends, sizeof ends, cudaMemcpyHostToDevice), "cudaMemcpy");
    return static_cast<const int*>(on_device);
  }

  ops::StateSpaceRows rows;
  ops::StateSpaceChunks chunks;
};

std::string shape_of(const StateSpaceSizes& sizes) {
  return matrix(sizes.tokens, OnDevice::width(sizes)) + ", " + std::to_string(sizes.heads) + " heads of " +
         std::to_string(sizes.head_dim) + ", " + std::to_string(sizes.groups) + " groups";
}

Case forward(const StateSpaceSizes& sizes) {
  const std::int64_t out = sizes.tokens * sizes.heads * sizes.head_dim;
  return {.kernel = "state space forward",
          .shape = shape_of(sizes),
          .bytes = (sizes.tokens * (OnDevice::width(sizes) + sizes.heads) + out) * kBF16,
          .make = [=](DeviceMemory& memory) -> Launch {
            const OnDevice in(memory, sizes);
            void* const to = memory.bf16(out);
            return [=](cudaStream_t stream) {
              ops::launch_state_space_chunks(kElement, sizes, in.rows, in.chunks, stream);
              ops::launch_state_space_forward(kElement, sizes, in.rows, in.chunks, nullptr, nullptr, to,
                                              stream);
            };
          }};
}

Case backward(const StateSpaceSizes& sizes) {
  const std::int64_t rows = sizes.tokens * OnDevice::width(sizes), steps = sizes.tokens * sizes.heads;
  const std::int64_t out = steps * sizes.head_dim;
  return {
      .kernel = "state space backward",
      .shape = shape_of(sizes),
      .bytes = (2 * (rows + steps) + out) * kBF16,
      .make = [=](DeviceMemory& memory) -> Launch {
        const OnDevice in(memory, sizes);
        const std::int64_t of_states = sizes.slots() * sizes.heads * sizes.state_dim * sizes.head_dim;
        const ops::StateSpaceStates states{
            .before = memory.fp32(of_states),
            .behind = memory.fp32(of_states),
            .steps = memory.fp32(sizes.slices() * steps),
            .sums = memory.fp32(sizes.blocks_of_group() * sizes.tokens * 2 * sizes.groups * sizes.state_dim)};
        const void* const dout = memory.bf16(out);
        void* const dxbc = memory.bf16(rows);
        void* const ddt = memory.bf16(steps);
        return [=](cudaStream_t stream) {
          ops::launch_state_space_chunks(kElement, sizes, in.rows, in.chunks, stream);
          ops::launch_state_space_states(kElement, sizes, in.rows, in.chunks, states, stream);
          ops::launch_state_space_reverse(kElement, sizes, in.rows, in.chunks, dout, states, dxbc, stream);
          ops::launch_state_space_gradients(kElement, sizes, in.rows, in.chunks, dout, states, ddt,
                                            sizes.heads, stream);
          ops::launch_state_space_sums(kElement, sizes, states.sums, dxbc, stream);
        };
      }};
}

}  // namespace

std::vector<Case> state_space_kernels(std::int64_t tokens) {
  std::vector<Case> cases;
  const auto sizes_of = [&](std::int64_t heads, std::int64_t head_dim, std::int64_t groups) {
    return StateSpaceSizes{.tokens = tokens,
                           .sequences = 1,
                           .heads = heads,
                           .head_dim = head_dim,
                           .groups = groups,
                           .state_dim = 128};
  };
  for (const StateSpaceSizes& sizes : {sizes_of(48, 64, 1), sizes_of(128, 64, 1), sizes_of(128, 80, 8)}) {
    cases.push_back(forward(sizes));
    cases.push_back(backward(sizes));
  }
  return cases;
}

}  // namespace lorikeet::bench
