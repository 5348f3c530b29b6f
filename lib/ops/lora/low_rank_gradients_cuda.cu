// A block has a range of rows and a slice of a projection's columns. It reads dy tile by tile, once: each
// tile is multiplied from the right, which adds to du of the block's rows, and, transposed, from the left,
// which adds to grad_b of the tile's columns. The sums over slices, and over ranges of rows, are those of a
// second kernel.
#include "ops/lora/low_rank_gradients_cuda.h"

#include <type_traits>

#include "ops/cuda_partial_sums.h"
#include "ops/cuda_tensor_core.h"
#include "ops/cuda_vector.h"
#include "ops/lora/low_rank_split.h"
#include "ops/low_rank_on_device.h"

namespace lorikeet::ops {
namespace {

using device::Left;
using device::Right;
using device::Sum;
using device::swizzled;

constexpr int kThreads = 256, kWarp = 32;
constexpr int kRank = LowRankSplit::kMostRank, kRows = LowRankSplit::kRows, kTile = LowRankSplit::kTile;
constexpr int kSubs = kRows / kTile;
// Eight warps multiply a tile: each a quarter of its rows, then of its columns, by one of two chunks of
// ranks.
constexpr int kPart = 16, kParts = kTile / kPart;
constexpr int kChunk = 8;                         // elements of 16 bytes
constexpr int kTileChunks = kTile / kChunk;       // of a row of a tile
constexpr int kRankChunks = kRank / kChunk;       // of a row of u or b
constexpr int kStages = 3, kAhead = kStages - 1;  // tiles in shared memory: one is read, two are on the way

// A projection's columns, in dy and among all that are adapted, and the slices of them.
struct Columns {
  std::int64_t begin, first, width;
  int first_slice, slices;
};

struct Shape {
  std::int64_t tokens, dy_row, u_row, all_columns;
  Columns columns[LowRankGradients::kMostProjections];
  int projections, rank;
  int tiles;  // of a slice

  // A number that differs between threads can't index a kernel's arguments without a copy of them.
  __device__ __forceinline__ Columns of(int projection) const {
    Columns found = columns[0];
#pragma unroll
    for (int i = 1; i < LowRankGradients::kMostProjections; ++i) {
      if (i == projection) found = columns[i];
    }
    return found;
  }
  __device__ __forceinline__ int projection_of(int slice) const {
    int projection = 0;
#pragma unroll
    for (int i = 1; i < LowRankGradients::kMostProjections; ++i) {
      if (i < projections && slice >= columns[i].first_slice) projection = i;
    }
    return projection;
  }
};

// A lane's part of a sum, of row `row` and of the one 8 further, where `rows` has them.
__device__ __forceinline__ void store_sum(const Sum& sum, int row, int rows, float* to, int stride) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half < rows)
      *reinterpret_cast<float2*>(to + static_cast<std::int64_t>(row + 8 * half) * stride) =
          make_float2(sum.values[2 * half], sum.values[2 * half + 1]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, LowRankSplit::kBlocksAtOnce)
    gradients_kernel(Shape shape, const T* dy, const T* u, const T* b, float* of_slices, float* of_ranges) {
  __shared__ uint4 tiles[kStages][kTile * kTileChunks];
  __shared__ uint4 u_rows[kRows * kRankChunks];
  __shared__ uint4 b_rows[kTile * kRankChunks];

  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int part = warp % kParts, rank_chunk = warp / kParts;
  const int slice = static_cast<int>(blockIdx.x), projection = shape.projection_of(slice);
  const Columns columns = shape.of(projection);
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * kRows;
  const int begin = (slice - columns.first_slice) * shape.tiles * kTile;
  // What is left of the rows and of the projection's columns.
  const int rows = static_cast<int>(shape.tokens - row0 < kRows ? shape.tokens - row0 : kRows);
  const int cols = static_cast<int>(columns.width) - begin;
  const int all_tiles = (cols + kTile - 1) / kTile;
  const int count = all_tiles < shape.tiles ? all_tiles : shape.tiles;

  // A thread copies the same chunk of every kRowsAtOnce-th row.
  constexpr int kRowsAtOnce = kThreads / kTileChunks;
  const int copied_row = thread / kTileChunks, copied_chunk = thread % kTileChunks;
  const T* const copied =
      dy + (row0 + copied_row) * shape.dy_row + columns.begin + begin + copied_chunk * kChunk;
  const T* const of_b = b + (columns.first + begin) * shape.rank;
  const auto load_tile = [&](int tile, int sub, int stage) {
    if (tile < count) {
      const int column = tile * kTile, row = sub * kTile;
      uint4* const to = tiles[stage] + swizzled<kTileChunks>(copied_row, copied_chunk);
#pragma unroll
      for (int i = 0; i < kTile; i += kRowsAtOnce) {
        const bool is_there = row + i + copied_row < rows && column + copied_chunk * kChunk < cols;
        device::begin_copy(to + i * kTileChunks, is_there ? copied + (row + i) * shape.dy_row + column : dy,
                           is_there);
      }
      if (sub == 0) {
        for (int item = thread; item < kTile * kRankChunks; item += kThreads) {
          const int b_row = column + item / kRankChunks, chunk = item % kRankChunks;
          const bool is_there = b_row < cols && chunk * kChunk < shape.rank;
          device::begin_copy(b_rows + swizzled<kRankChunks>(item / kRankChunks, chunk),
                             is_there ? of_b + b_row * shape.rank + chunk * kChunk : b, is_there);
        }
      }
    }
    device::end_group();
  };

  for (int item = thread; item < kRows * kRankChunks; item += kThreads) {
    const int row = item / kRankChunks, chunk = item % kRankChunks;
    const bool is_there = row < rows && chunk * kChunk < shape.rank;
    device::begin_copy(
        u_rows + swizzled<kRankChunks>(row, chunk),
        is_there ? u + (row0 + row) * shape.u_row + projection * shape.rank + chunk * kChunk : u, is_there);
  }
#pragma unroll
  for (int ahead = 0; ahead < kAhead; ++ahead) load_tile(0, ahead, ahead);

  // Rows of du are those of this warp's part of each tile, grad_b's are its columns.
  Sum du[kSubs] = {};
  const int rank = rank_chunk * kChunk + lane % 4 * 2;  // the first of a lane's two in a sum
  int stage = 0;
  for (int tile = 0; tile < count; ++tile) {
    Sum db = {};
    Right b_part[kParts];
#pragma unroll
    for (int sub = 0; sub < kSubs; ++sub) {
      device::wait_for_groups<kAhead - 1>();
      __syncthreads();  // the tile is whole, and the one before it has been read by all
      load_tile(sub + kAhead < kSubs ? tile : tile + 1, (sub + kAhead) % kSubs,
                stage == 0 ? kAhead : stage - 1);
      const uint4* const read = tiles[stage];
      stage = stage == kAhead ? 0 : stage + 1;
      if (sub == 0) {
#pragma unroll
        for (int k = 0; k < kParts; k += 2) {
          unsigned words[4];  // of two parts
          device::load_transposed(b_rows + swizzled<kRankChunks>(k * kPart + lane, rank_chunk), words);
          b_part[k] = {{words[0], words[1]}};
          b_part[k + 1] = {{words[2], words[3]}};
        }
      }
#pragma unroll
      for (int k = 0; k < kParts; ++k) {
        Left x;
        const int row = part * kPart + lane % kPart, chunk = 2 * k + lane / kPart;
        device::load_matrices(read + swizzled<kTileChunks>(row, chunk), x.words);
        device::multiply_add<T>(du[sub], x, b_part[k]);
      }
#pragma unroll
      for (int k = 0; k < kParts; k += 2) {
        Left first, second;
        unsigned words[4];
        // Of the transpose: its matrices beside each other are rows of the tile below each other.
        const int row = k * kPart + lane % 8 + lane / 16 * 8, chunk = 2 * part + lane / 8 % 2;
        device::load_transposed(read + swizzled<kTileChunks>(row, chunk), first.words);
        device::load_transposed(read + swizzled<kTileChunks>(row + kPart, chunk), second.words);
        device::load_transposed(u_rows + swizzled<kRankChunks>(sub * kTile + k * kPart + lane, rank_chunk),
                                words);
        device::multiply_add<T>(db, first, {{words[0], words[1]}});
        device::multiply_add<T>(db, second, {{words[2], words[3]}});
      }
    }
    if (rank < shape.rank) {
      const std::int64_t range = blockIdx.y * shape.all_columns + columns.first + begin;
      store_sum(db, tile * kTile + part * kPart + lane / 4, cols, of_ranges + range * shape.rank + rank,
                shape.rank);
    }
  }
  if (rank >= shape.rank) return;
  float* const to = of_slices + (blockIdx.x * shape.tokens + row0) * shape.rank + rank;
#pragma unroll
  for (int sub = 0; sub < kSubs; ++sub)
    store_sum(du[sub], sub * kTile + part * kPart + lane / 4, rows, to, shape.rank);
}

// One thread four numbers of du, or, behind these, of grad_b.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(Shape shape, std::int64_t ranges, const float* of_slices, const float* of_ranges, float scale,
                T* du, float* grad_b) {
  const int of_row = shape.rank / 4, row_items = shape.projections * of_row;
  std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item < shape.tokens * row_items) {
    const std::int64_t token = item / row_items;
    const int in_row = static_cast<int>(item - token * row_items), projection = in_row / of_row,
              rank = (in_row - projection * of_row) * 4;
    const Columns columns = shape.of(projection);
    const float4 sum =
        device::sum_of(of_slices + (columns.first_slice * shape.tokens + token) * shape.rank + rank,
                       columns.slices, shape.tokens * shape.rank);
    const float values[4] = {sum.x, sum.y, sum.z, sum.w};
    device::store_pack<4>(device::pack<T, 4>(values),
                          du + token * shape.u_row + projection * shape.rank + rank);
    return;
  }
  item -= shape.tokens * row_items;
  if (item >= shape.all_columns * of_row) return;
  const float4 sum = device::sum_of(of_ranges + item * 4, ranges, shape.all_columns * shape.rank);
  device::add_sum(sum, scale, grad_b + item * 4);
}

Shape shape_of(const LowRankGradients& in, const LowRankSplit& split) {
  Shape shape{};
  shape.tokens = in.tokens;
  shape.dy_row = in.dy_row;
  shape.u_row = in.projections * in.rank;
  shape.rank = static_cast<int>(in.rank);
  shape.all_columns = in.columns();
  shape.projections = in.projections;
  shape.tiles = static_cast<int>(split.tiles);
  std::int64_t first = 0;
  int slice = 0;
  for (int i = 0; i < in.projections; ++i) {
    const int slices = static_cast<int>(split.slices(in.width[i]));
    shape.columns[i] = {in.begin[i], first, in.width[i], slice, slices};
    first += in.width[i];
    slice += slices;
  }
  return shape;
}

template <typename T>
void launch(const LowRankGradients& in, float* scratch, cudaStream_t stream) {
  const LowRankSplit split(in);
  const Shape shape = shape_of(in, split);
  const Columns& last = shape.columns[in.projections - 1];
  const std::int64_t slices = last.first_slice + last.slices;
  float* const of_ranges = scratch + slices * in.tokens * in.rank;
  gradients_kernel<T>
      <<<dim3(static_cast<unsigned>(slices), static_cast<unsigned>(split.ranges)), kThreads, 0, stream>>>(
          shape, static_cast<const T*>(in.dy), static_cast<const T*>(in.u), static_cast<const T*>(in.b),
          scratch, of_ranges);
  device::check_launch("low_rank_gradients", cudaGetLastError());
  const std::int64_t items = (in.tokens * in.projections + shape.all_columns) * (in.rank / 4);
  sums_kernel<T><<<device::blocks_of(items, kThreads), kThreads, 0, stream>>>(
      shape, split.ranges, scratch, of_ranges, static_cast<float>(in.scale), static_cast<T*>(in.du),
      in.grad_b);
  device::check_launch("low_rank_gradients", cudaGetLastError());
}

}  // namespace

bool has_tensor_core_kernels(int capability) { return device::has_tensor_core_code(capability); }

void launch_low_rank_gradients(CudaElement element, const LowRankGradients& in, float* scratch,
                               void* stream) {
  if (in.tokens == 0) return;
  device::dispatch_16_bits(element, [&](auto* null) {
    launch<std::remove_pointer_t<decltype(null)>>(in, scratch, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace lorikeet::ops
