// A block has a tile of one expert's rows and of the result's columns. Low-rank terms come first, so that
// their common scale multiplies the sums once; then the large product. Tiles of both operands pass through
// shared memory in stages, the next ones on their way while one is multiplied.
#include "ops/experts/grouped_products_cuda.h"

#include <type_traits>

#include "ops/experts/grouped_tiles.h"

namespace lorikeet::ops {
namespace {

using device::kChunk;
using device::kInnerChunks;
using device::kTileInner;
using device::Left;
using device::Right;
using device::Sum;
using device::swizzled;

constexpr int kThreads = 128, kWarp = device::kWarpThreads, kWarps = kThreads / kWarp;
constexpr int kTileRows = 128;
constexpr int kStages = 3, kAhead = kStages - 1;

// How the tile's columns are cut: a warp has [kWarpRows, kWarpColumns] of it. Two registers of sums a thread
// and element of a small tile would leave the tensor cores waiting for operands.
template <int columns>
struct Cut {
  static constexpr int kColumns = columns;
  static constexpr int kWarpColumns = columns == 128 ? 64 : 32;
  static constexpr int kWarpsAcross = columns / kWarpColumns;
  static constexpr int kWarpRows = kTileRows / (kWarps / kWarpsAcross);
  static constexpr int kColumnChunks = columns / kChunk;
  static constexpr int kLeftChunks = kTileRows * kInnerChunks;  // of a stage
  static constexpr int kRightChunks = columns * kInnerChunks;
};

// GroupedOperands without the pointers, which are arguments of their own.
struct Shape {
  std::int64_t left_row, right_row, right_expert;
  int inner, begin, end;
};

template <typename T>
struct Operands {
  const T *left, *right;  // of the tile's first row; of its expert
  Shape shape;
};

struct Launch {
  std::int64_t out_row, bias_expert;
  Shape shapes[GroupedProduct::kMostTerms + 1];  // of the terms, and of the large product, the last
  int begin, end, width, terms;                  // experts begin to end
  float scale;
};

// A stage's tiles, from `inner0` on. Rows and columns that aren't there become zeros.
template <typename T, bool transposed, typename Cut>
__device__ __forceinline__ void begin_copies(const Operands<T>& from, int rows, int column0, int inner0,
                                             uint4* stage) {
  const int thread = static_cast<int>(threadIdx.x);
  const Shape& shape = from.shape;
#pragma unroll
  for (int item = thread; item < Cut::kLeftChunks; item += kThreads) {
    const int row = item / kInnerChunks, chunk = item % kInnerChunks, inner = inner0 + chunk * kChunk;
    const bool is_there = row < rows && inner < shape.inner;
    device::begin_copy(stage + swizzled<kInnerChunks>(row, chunk),
                       is_there ? from.left + row * shape.left_row + inner : from.left, is_there);
  }
  uint4* const right = stage + Cut::kLeftChunks;
#pragma unroll
  for (int item = thread; item < Cut::kRightChunks; item += kThreads) {
    if constexpr (transposed) {
      const int row = item / Cut::kColumnChunks, chunk = item % Cut::kColumnChunks;
      const int inner = inner0 + row, column = column0 + chunk * kChunk;
      const bool is_there = inner < shape.inner && column >= shape.begin && column < shape.end;
      device::begin_copy(
          right + swizzled<Cut::kColumnChunks>(row, chunk),
          is_there ? from.right + inner * shape.right_row + (column - shape.begin) : from.right, is_there);
    } else {
      const int row = item / kInnerChunks, chunk = item % kInnerChunks;
      const int inner = inner0 + chunk * kChunk, column = column0 + row;
      const bool is_there = inner < shape.inner && column >= shape.begin && column < shape.end;
      device::begin_copy(
          right + swizzled<kInnerChunks>(row, chunk),
          is_there ? from.right + (column - shape.begin) * shape.right_row + inner : from.right, is_there);
    }
  }
}

// The sums of a warp: products [16, 8] below and beside each other.
template <typename Cut>
struct WarpSums {
  static constexpr int kDown = Cut::kWarpRows / 16, kAcross = Cut::kWarpColumns / 8;
  Sum sums[kDown][kAcross];
};

template <typename T, bool transposed, typename Cut>
__device__ __forceinline__ void multiply_stage(const uint4* stage, int first_row, int first_column,
                                               WarpSums<Cut>& to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint4* const right = stage + Cut::kLeftChunks;
#pragma unroll
  for (int step = 0; step < kTileInner / device::kProductInner; ++step) {
    Left left[WarpSums<Cut>::kDown];
#pragma unroll
    for (int i = 0; i < WarpSums<Cut>::kDown; ++i)
      device::load_matrices(
          stage + swizzled<kInnerChunks>(first_row + i * 16 + lane % 16, 2 * step + lane / 16),
          left[i].words);
#pragma unroll
    for (int j = 0; j < WarpSums<Cut>::kAcross; j += 2) {
      unsigned words[4];  // of two products beside each other
      if constexpr (transposed) {
        const int row = step * 16 + lane % 16, chunk = first_column / kChunk + j + lane / 16;
        device::load_transposed(right + swizzled<Cut::kColumnChunks>(row, chunk), words);
      } else {
        const int row = first_column + j * 8 + lane % 8 + lane / 16 * 8, chunk = 2 * step + lane / 8 % 2;
        device::load_matrices(right + swizzled<kInnerChunks>(row, chunk), words);
      }
#pragma unroll
      for (int i = 0; i < WarpSums<Cut>::kDown; ++i) {
        device::multiply_add<T>(to.sums[i][j], left[i], {{words[0], words[1]}});
        device::multiply_add<T>(to.sums[i][j + 1], left[i], {{words[2], words[3]}});
      }
    }
  }
}

// to += the product of one pair of operands.
template <typename T, bool transposed, typename Cut>
__device__ __forceinline__ void multiply(const Operands<T>& operands, int rows, int column0, uint4* tiles,
                                         int first_row, int first_column, WarpSums<Cut>& to) {
  constexpr int kStageChunks = Cut::kLeftChunks + Cut::kRightChunks;
  const int count = (operands.shape.inner + kTileInner - 1) / kTileInner;
  __syncthreads();  // what was multiplied before has been read by all
#pragma unroll
  for (int ahead = 0; ahead < kAhead; ++ahead) {
    if (ahead < count)
      begin_copies<T, transposed, Cut>(operands, rows, column0, ahead * kTileInner,
                                       tiles + ahead * kStageChunks);
    device::end_group();
  }
  int stage = 0, next = kAhead;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    device::wait_for_groups<kAhead - 1>();
    __syncthreads();  // the stage is whole, and the one before it has been read by all
    if (i + kAhead < count)
      begin_copies<T, transposed, Cut>(operands, rows, column0, (i + kAhead) * kTileInner,
                                       tiles + next * kStageChunks);
    device::end_group();
    multiply_stage<T, transposed, Cut>(tiles + stage * kStageChunks, first_row, first_column, to);
    stage = stage == kAhead ? 0 : stage + 1;
    next = next == kAhead ? 0 : next + 1;
  }
  device::wait_for_groups<0>();
}

// Rounds a warp's sums and stores them by way of shared memory, in whole accesses.
template <typename T, typename Cut>
__device__ __forceinline__ void store(const WarpSums<Cut>& from, uint4* tiles, int rows, int columns,
                                      std::int64_t out_row, T* out) {
  constexpr int kChunks = Cut::kWarpColumns / kChunk;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  uint4* const own = tiles + warp * Cut::kWarpRows * kChunks;
  __syncthreads();  // all have read the last stage
#pragma unroll
  for (int i = 0; i < WarpSums<Cut>::kDown; ++i) {
#pragma unroll
    for (int j = 0; j < WarpSums<Cut>::kAcross; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float pair[2] = {from.sums[i][j].values[2 * half], from.sums[i][j].values[2 * half + 1]};
        reinterpret_cast<unsigned*>(own + swizzled<kChunks>(i * 16 + half * 8 + lane / 4, j))[lane % 4] =
            device::pack<T, 2>(pair).words[0];
      }
    }
  }
  __syncwarp();
#pragma unroll
  for (int item = lane; item < Cut::kWarpRows * kChunks; item += kWarp) {
    const int row = item / kChunks, chunk = item % kChunks;
    if (row >= rows || chunk * kChunk >= columns) continue;
    const uint4 words = own[swizzled<kChunks>(row, chunk)];
    device::store_pack<kChunk>(device::Pack<T, kChunk>{{words.x, words.y, words.z, words.w}},
                               out + row * out_row + chunk * kChunk);
  }
}

template <typename T, bool transposed, typename Cut>
__global__ void __launch_bounds__(kThreads, 2)
    product_kernel(Launch launch, const std::int64_t* ends, const T* left, const T* right, const T* left0,
                   const T* right0, const T* left1, const T* right1, const T* bias, T* out) {
  __shared__ uint4 tiles[kStages * (Cut::kLeftChunks + Cut::kRightChunks)];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t tile = blockIdx.y;
  const int at = device::expert_of_tile(tile, ends, launch.begin, launch.end, kTileRows);
  if (at == launch.end) return;
  const int expert = at - launch.begin;
  const device::RowRange range = device::rows_of_expert(ends, at);
  const std::int64_t row0 = range.begin + (tile - range.begin / kTileRows - expert) * kTileRows;
  if (row0 < range.begin || row0 >= range.end) return;
  const int rows = static_cast<int>(range.end - row0 < kTileRows ? range.end - row0 : kTileRows);
  const int column0 = static_cast<int>(blockIdx.x) * Cut::kColumns;
  const int first_row = warp / Cut::kWarpsAcross * Cut::kWarpRows;
  const int first_column = warp % Cut::kWarpsAcross * Cut::kWarpColumns;

  WarpSums<Cut> sums = {};
#pragma unroll 1
  for (int i = GroupedProduct::kMostTerms - launch.terms; i <= GroupedProduct::kMostTerms; ++i) {
    // Without a table of pointers, which would lie in local memory.
    const bool is_large = i == GroupedProduct::kMostTerms, is_last = i == GroupedProduct::kMostTerms - 1;
    Operands<T> operands;
    operands.left = is_large ? left : is_last ? left1 : left0;
    operands.right = is_large ? right : is_last ? right1 : right0;
    operands.shape = is_large ? launch.shapes[2] : is_last ? launch.shapes[1] : launch.shapes[0];
    if (is_large && launch.terms > 0) {
#pragma unroll
      for (auto& below : sums.sums) {
#pragma unroll
        for (Sum& sum : below) {
#pragma unroll
          for (float& value : sum.values) value *= launch.scale;
        }
      }
    }
    if (column0 >= operands.shape.end || column0 + Cut::kColumns <= operands.shape.begin) continue;
    operands.left += row0 * operands.shape.left_row;
    operands.right += expert * operands.shape.right_expert;
    multiply<T, transposed, Cut>(operands, rows, column0, tiles, first_row, first_column, sums);
  }
  if (bias != nullptr) {
    const T* const own = bias + expert * launch.bias_expert;
#pragma unroll
    for (int j = 0; j < WarpSums<Cut>::kAcross; ++j) {
      const int column = column0 + first_column + j * 8 + lane % 4 * 2;
      if (column >= launch.width) continue;
      const float first = device::widen(own[column]), second = device::widen(own[column + 1]);
#pragma unroll
      for (int i = 0; i < WarpSums<Cut>::kDown; ++i) {
        float(&values)[4] = sums.sums[i][j].values;
        values[0] += first, values[1] += second, values[2] += first, values[3] += second;
      }
    }
  }
  store<T, Cut>(sums, tiles, rows - first_row, launch.width - column0 - first_column, launch.out_row,
                out + (row0 + first_row) * launch.out_row + column0 + first_column);
}

Shape shape_of(const GroupedOperands& in) {
  return {in.left_row,
          in.right_row,
          in.right_expert,
          static_cast<int>(in.inner),
          static_cast<int>(in.begin),
          static_cast<int>(in.end)};
}

template <typename T, bool transposed, int columns>
void launch_cut(const ExpertsOnDevice& experts, const GroupedProduct& product, cudaStream_t stream) {
  constexpr int kMost = GroupedProduct::kMostTerms;
  const int unused = kMost - product.term_count;
  Launch launch{};
  launch.out_row = product.out_row;
  launch.bias_expert = product.bias_expert;
  launch.begin = static_cast<int>(experts.begin);
  launch.end = static_cast<int>(experts.end);
  launch.width = static_cast<int>(product.operands.end);
  launch.terms = product.term_count;
  launch.scale = product.scale;
  launch.shapes[kMost] = shape_of(product.operands);
  const T *lefts[kMost] = {}, *rights[kMost] = {};
  for (int i = 0; i < product.term_count; ++i) {
    launch.shapes[unused + i] = shape_of(product.terms[i]);
    lefts[unused + i] = static_cast<const T*>(product.terms[i].left);
    rights[unused + i] = static_cast<const T*>(product.terms[i].right);
  }
  const dim3 grid(
      device::blocks_of(product.operands.end, columns),
      static_cast<unsigned>(device::row_tiles(experts.rows, experts.end - experts.begin, kTileRows)));
  const auto kernel = product_kernel<T, transposed, Cut<columns>>;
  kernel<<<grid, kThreads, 0, stream>>>(launch, experts.ends, static_cast<const T*>(product.operands.left),
                                        static_cast<const T*>(product.operands.right), lefts[0], rights[0],
                                        lefts[1], rights[1], static_cast<const T*>(product.bias),
                                        static_cast<T*>(product.out));
}

}  // namespace

void launch_grouped_product(CudaElement element, const ExpertsOnDevice& experts,
                            const GroupedProduct& product, void* stream) {
  if (experts.rows == 0) return;
  constexpr int kNarrow = 32, kWide = 128;
  device::dispatch_16_bits(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    const auto launch = [&](auto is_transposed) {
      constexpr bool transposed = decltype(is_transposed)::value;
      const cudaStream_t on = static_cast<cudaStream_t>(stream);
      if (product.operands.end <= kNarrow) {
        launch_cut<T, transposed, kNarrow>(experts, product, on);
      } else {
        launch_cut<T, transposed, kWide>(experts, product, on);
      }
    };
    if (experts.transposed) {
      launch(std::true_type());
    } else {
      launch(std::false_type());
    }
  });
  device::check_launch("experts", cudaGetLastError());
}

}  // namespace lorikeet::ops
