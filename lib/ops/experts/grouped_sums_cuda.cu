// Sums over the rows of each expert, as the gradients of low-rank factors are: a block has a tile of one
// expert's result, 128 columns of the wide operand by 32 of the narrow one, and reads all of the expert's
// rows.
#include <type_traits>

#include "ops/experts/grouped_products_cuda.h"
#include "ops/experts/grouped_tiles.h"

namespace lorikeet::ops {
namespace {

using device::kChunk;
using device::Left;
using device::Right;
using device::Sum;
using device::swizzled;

constexpr int kThreads = 128, kWarp = device::kWarpThreads, kWarps = kThreads / kWarp;
constexpr int kWide = 128, kNarrow = 32, kRows = device::kTileInner;
constexpr int kWarpWide = kWide / kWarps;
constexpr int kWideChunks = kWide / kChunk, kNarrowChunks = kNarrow / kChunk;
constexpr int kStageChunks = kRows * (kWideChunks + kNarrowChunks);
constexpr int kStages = 4, kAhead = kStages - 1;
constexpr int kDown = kWarpWide / 16, kAcross = kNarrow / 8;

// All but the pointers, which are arguments of their own.
struct Launch {
  std::int64_t wide_row, narrow_row, out_expert;
  int begin;         // the first expert
  int wide, narrow;  // widths
  float scale;
};

// [kRows, chunks] of an operand. Rows and columns that aren't there become zeros.
template <int chunks, typename T>
__device__ __forceinline__ void begin_copies(const T* from, std::int64_t from_row, std::int64_t rows,
                                             int column0, int width, uint4* to) {
#pragma unroll
  for (int item = static_cast<int>(threadIdx.x); item < kRows * chunks; item += kThreads) {
    const int row = item / chunks, chunk = item % chunks, column = column0 + chunk * kChunk;
    const bool is_there = row < rows && column < width;
    device::begin_copy(to + swizzled<chunks>(row, chunk), is_there ? from + row * from_row + column : from,
                       is_there);
  }
}

// wide_first: the wide operand is the left one.
template <typename T, bool wide_first>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(Launch launch, const std::int64_t* ends, const T* wide, const T* narrow, float* out) {
  __shared__ uint4 tiles[kStages * kStageChunks];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int expert = static_cast<int>(blockIdx.z);
  const int wide0 = static_cast<int>(blockIdx.x) * kWide, narrow0 = static_cast<int>(blockIdx.y) * kNarrow;
  const device::RowRange range = device::rows_of_expert(ends, launch.begin + expert);
  const std::int64_t rows = range.end - range.begin;
  if (rows <= 0) return;
  const auto load = [&](std::int64_t row, int stage) {
    if (row < rows) {
      uint4* const to = tiles + stage * kStageChunks;
      begin_copies<kWideChunks>(wide + (range.begin + row) * launch.wide_row, launch.wide_row, rows - row,
                                wide0, launch.wide, to);
      begin_copies<kNarrowChunks>(narrow + (range.begin + row) * launch.narrow_row, launch.narrow_row,
                                  rows - row, narrow0, launch.narrow, to + kRows * kWideChunks);
    }
    device::end_group();
  };
#pragma unroll
  for (int ahead = 0; ahead < kAhead; ++ahead) load(ahead * kRows, ahead);

  Sum sums[kDown][kAcross] = {};
  int stage = 0, next = kAhead;
#pragma unroll 1
  for (std::int64_t row = 0; row < rows; row += kRows) {
    device::wait_for_groups<kAhead - 1>();
    __syncthreads();  // the stage is whole, and the one before it has been read by all
    load(row + std::int64_t{kAhead} * kRows, next);
    const uint4* const of_wide = tiles + stage * kStageChunks;
    const uint4* const of_narrow = of_wide + kRows * kWideChunks;
    stage = stage == kAhead ? 0 : stage + 1;
    next = next == kAhead ? 0 : next + 1;
#pragma unroll
    for (int step = 0; step < kRows / device::kProductInner; ++step) {
      Left left[kDown];
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        // Of the transpose: its matrices beside each other are rows of the tile below each other.
        const int at = step * 16 + lane % 8 + lane / 16 * 8;
        const int chunk = warp * (kWarpWide / kChunk) + 2 * i + lane / 8 % 2;
        device::load_transposed(of_wide + swizzled<kWideChunks>(at, chunk), left[i].words);
      }
#pragma unroll
      for (int j = 0; j < kAcross; j += 2) {
        unsigned words[4];  // of two products beside each other
        device::load_transposed(of_narrow + swizzled<kNarrowChunks>(step * 16 + lane % 16, j + lane / 16),
                                words);
#pragma unroll
        for (int i = 0; i < kDown; ++i) {
          device::multiply_add<T>(sums[i][j], left[i], {{words[0], words[1]}});
          device::multiply_add<T>(sums[i][j + 1], left[i], {{words[2], words[3]}});
        }
      }
    }
  }
  device::wait_for_groups<0>();

  float* const own = out + expert * launch.out_expert;
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int of_wide = wide0 + warp * kWarpWide + i * 16 + lane / 4 + n / 2 * 8;
        const int of_narrow = narrow0 + j * 8 + lane % 4 * 2 + n % 2;
        if (of_wide >= launch.wide || of_narrow >= launch.narrow) continue;
        float* const to = own + (wide_first ? static_cast<std::int64_t>(of_wide) * launch.narrow + of_narrow
                                            : static_cast<std::int64_t>(of_narrow) * launch.wide + of_wide);
        *to += launch.scale * sums[i][j].values[n];
      }
    }
  }
}

template <typename T, bool wide_first>
void launch_order(const ExpertsOnDevice& experts, const GroupedSums& in, cudaStream_t stream) {
  Launch launch{};
  launch.begin = static_cast<int>(experts.begin);
  launch.wide_row = wide_first ? in.left_row : in.right_row;
  launch.narrow_row = wide_first ? in.right_row : in.left_row;
  launch.wide = static_cast<int>(wide_first ? in.left_width : in.right_width);
  launch.narrow = static_cast<int>(wide_first ? in.right_width : in.left_width);
  launch.out_expert = in.out_expert;
  launch.scale = in.scale;
  const dim3 grid(device::blocks_of(launch.wide, kWide), device::blocks_of(launch.narrow, kNarrow),
                  static_cast<unsigned>(experts.end - experts.begin));
  sums_kernel<T, wide_first><<<grid, kThreads, 0, stream>>>(
      launch, experts.ends, static_cast<const T*>(wide_first ? in.left : in.right),
      static_cast<const T*>(wide_first ? in.right : in.left), in.out);
}

}  // namespace

void launch_grouped_sums(CudaElement element, const ExpertsOnDevice& experts, const GroupedSums& sums,
                         void* stream) {
  if (experts.rows == 0) return;
  device::dispatch_16_bits(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    if (sums.left_width >= sums.right_width) {
      launch_order<T, true>(experts, sums, static_cast<cudaStream_t>(stream));
    } else {
      launch_order<T, false>(experts, sums, static_cast<cudaStream_t>(stream));
    }
  });
  device::check_launch("experts", cudaGetLastError());
}

}  // namespace lorikeet::ops
