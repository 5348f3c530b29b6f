#pragma once

// Included by .cu files alone: matrices [64, 64] of fp32 in shared memory and their products by a block of
// 256 threads. A thread owns the same four rows of every matrix, and of each its share of the columns: it
// loads, scales, sums and stores the elements that it owns, and meets those of others in products alone.
#include <cstdint>
#include <type_traits>

#include "ops/cuda_vector.h"

namespace lorikeet::ops::tiles {

inline constexpr int kThreads = 256, kSide = 64, kWarp = 32;
inline constexpr int kRows = 4;                   // that a thread owns
inline constexpr int kRowThreads = 16;            // that share them: half a warp
inline constexpr int kRowChunks = kSide / 4;      // of 16 bytes, in a row of a tile
inline constexpr int kTile = kSide * kRowChunks;  // float4s of one
inline constexpr int kSliceColumns = 32;          // of a state, or of values, that a block of a scan has
inline constexpr int kSlice = kSide * kSliceColumns / 2;  // float2s of [64, kSliceColumns]

/// What a slice [64, 16 * columns] consists of, kSlice of them: a thread's columns of a row.
template <int columns>
using SliceElement = std::conditional_t<columns == 2, float2, float>;

__device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int first_row() { return thread() / kRowThreads * kRows; }
__device__ __forceinline__ int share() { return thread() % kRowThreads; }

// The same number, of which the compiler knows nothing: it would keep what is computed of it, as the places
// of all rows in all matrices of a kernel, in registers that there aren't.
#ifdef __CUDACC__
__device__ __forceinline__ int opaque(int number) {
  asm volatile("" : "+r"(number));
  return number;
}
#else
inline int opaque(int number) { return number; }
#endif

// Where four columns of a tile's row lie: the same columns of rows that follow each other, four by four, are
// in different banks.
__device__ __forceinline__ int place(int row, int chunk) {
  return row * kRowChunks + (chunk ^ (row / kRows % 8));
}
__device__ __forceinline__ float& element(float4* tile, int row, int column) {
  return reinterpret_cast<float*>(tile + place(row, column / 4))[column % 4];
}

/// What a thread owns of a tile, columns [4 share, 4 share + 4), or of a slice, [2 share, 2 share + 2), of a
/// narrow one column `share`.
template <int columns>
struct Patch {
  float values[kRows][columns];

  // A row's numbers times `of_row`'s.
  __device__ __forceinline__ void scale_rows(const float* of_row) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < columns; ++c) values[r][c] *= of_row[first_row() + r];
    }
  }
  __device__ __forceinline__ void scale(float factor) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < columns; ++c) values[r][c] *= factor;
    }
  }
  __device__ __forceinline__ void add(const Patch& other) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < columns; ++c) values[r][c] += other.values[r][c];
    }
  }
};

/// The same as it lies in memory, so that a load can be under way while other things are computed.
template <typename T, int columns>
struct Loaded {
  device::Pack<T, columns> rows[kRows];

  __device__ __forceinline__ Patch<columns> patch() const {
    Patch<columns> out;
#pragma unroll
    for (int r = 0; r < kRows; ++r) device::unpack<T, columns>(rows[r], out.values[r]);
    return out;
  }
};

/// Loads from a matrix that begins at `from`, with zeros behind its `rows` and `columns`, whose number is a
/// multiple of 4.
template <int of_thread, typename T>
__device__ __forceinline__ Loaded<T, of_thread> load(const T* from, int stride, int rows, int columns) {
  Loaded<T, of_thread> out;
  const int first = opaque(first_row()), column = share() * of_thread;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first + r;
    out.rows[r] = row < rows && column < columns ? device::load_pack<of_thread>(from + row * stride + column)
                                                 : device::Pack<T, of_thread>{};
  }
  return out;
}

/// Stores what a matrix has of them.
template <int of_thread, typename T>
__device__ __forceinline__ void store(const Patch<of_thread>& patch, T* to, int stride, int rows,
                                      int columns) {
  const int first = opaque(first_row()), column = share() * of_thread;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first + r;
    if (row < rows && column < columns)
      device::store_pack<of_thread>(device::pack<T, of_thread>(patch.values[r]), to + row * stride + column);
  }
}

__device__ __forceinline__ void store_tile(const Patch<4>& patch, float4* tile) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float(&v)[4] = patch.values[r];
    tile[place(first_row() + r, share())] = make_float4(v[0], v[1], v[2], v[3]);
  }
}
__device__ __forceinline__ void store_slice(const Patch<2>& patch, float2* slice) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    slice[(first_row() + r) * kRowThreads + share()] = make_float2(patch.values[r][0], patch.values[r][1]);
}
__device__ __forceinline__ void store_slice(const Patch<1>& patch, float* slice) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) slice[(first_row() + r) * kRowThreads + share()] = patch.values[r][0];
}

__device__ __forceinline__ void get(const float4& from, float (&out)[4]) {
  out[0] = from.x, out[1] = from.y, out[2] = from.z, out[3] = from.w;
}
// A row's columns of the thread, of a right operand.
__device__ __forceinline__ void row_of(const float4* tile, int row, int share, float (&out)[4]) {
  get(tile[place(row, share)], out);
}
__device__ __forceinline__ void row_of(const float2* slice, int row, int share, float (&out)[2]) {
  const float2 two = slice[row * kRowThreads + share];
  out[0] = two.x, out[1] = two.y;
}
__device__ __forceinline__ void row_of(const float* slice, int row, int share, float (&out)[1]) {
  out[0] = slice[row * kRowThreads + share];
}

/// What the thread owns of a tile or slice in shared memory.
__device__ __forceinline__ Patch<4> own_of(const float4* tile) {
  Patch<4> own;
#pragma unroll
  for (int r = 0; r < kRows; ++r) row_of(tile, first_row() + r, share(), own.values[r]);
  return own;
}
__device__ __forceinline__ Patch<2> own_of(const float2* slice) {
  Patch<2> own;
#pragma unroll
  for (int r = 0; r < kRows; ++r) row_of(slice, first_row() + r, share(), own.values[r]);
  return own;
}
__device__ __forceinline__ Patch<1> own_of(const float* slice) {
  Patch<1> own;
#pragma unroll
  for (int r = 0; r < kRows; ++r) row_of(slice, first_row() + r, share(), own.values[r]);
  return own;
}

/// sum += left right, where left is a tile, right a tile or a slice.
template <int columns, typename Right>
__device__ __forceinline__ void add_product(Patch<columns>& sum, const float4* left, const Right* right) {
  const int first = opaque(first_row()), own = opaque(share());
#pragma unroll 2
  for (int chunk = 0; chunk < kRowChunks; ++chunk) {
    float a[kRows][4];
#pragma unroll
    for (int r = 0; r < kRows; ++r) get(left[place(first + r, chunk)], a[r]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float b[columns];
      row_of(right, chunk * 4 + i, own, b);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < columns; ++c) sum.values[r][c] += a[r][i] * b[c];
      }
    }
  }
}

/// sum += left^T right.
template <int columns, typename Right>
__device__ __forceinline__ void add_product_of_transposed(Patch<columns>& sum, const float4* left,
                                                          const Right* right) {
  const int first = opaque(first_row()), own = opaque(share());
#pragma unroll 8
  for (int i = 0; i < kSide; ++i) {
    float a[kRows], b[columns];
    get(left[place(i, first / kRows)], a);
    row_of(right, i, own, b);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < columns; ++c) sum.values[r][c] += a[r] * b[c];
    }
  }
}

/// sum += left right^T, of tiles.
__device__ __forceinline__ void add_product_with_transposed(Patch<4>& sum, const float4* left,
                                                            const float4* right) {
  const int first = opaque(first_row()), own = opaque(share());
#pragma unroll 1  // with two a kernel of several such products wants more than 128 registers
  for (int chunk = 0; chunk < kRowChunks; ++chunk) {
    float a[kRows][4], b[4][4];
#pragma unroll
    for (int r = 0; r < kRows; ++r) get(left[place(first + r, chunk)], a[r]);
#pragma unroll
    for (int c = 0; c < 4; ++c) get(right[place(own * 4 + c, chunk)], b[c]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sum.values[r][c] += a[r][i] * b[c][i];
      }
    }
  }
}

/// The sum over the threads that share a row; each gets it.
__device__ __forceinline__ float sum_of_row(float value) {
#pragma unroll
  for (int lanes = kRowThreads / 2; lanes > 0; lanes /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFU, value, lanes, kRowThreads);
  return value;
}

/// Sums over the elements of each row that this thread owns, of a product of two patches.
template <int columns>
__device__ __forceinline__ void add_dots(const Patch<columns>& a, const Patch<columns>& b, float factor,
                                         float (&sums)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < columns; ++c) sum += a.values[r][c] * b.values[r][c];
    sums[r] += factor * sum;
  }
}

/// Sums over each row of products of what its threads own, added to what a thread of the row keeps of it.
__device__ __forceinline__ void add_row_sums(const Patch<4>& a, const Patch<4>& b, float* sums) {
  const int first = opaque(first_row());
  float dots[kRows] = {};
  add_dots(a, b, 1, dots);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float sum = sum_of_row(dots[r]);
    if (share() == 0) sums[first + r] += sum;
  }
}

/// The part of a warp's rows in the sums over i >= t > j of x_ij, for each token t that is one of the
/// thread's columns; what threads own of x on and above the diagonal doesn't count. A row is summed up from
/// its begin.
__device__ __forceinline__ void passing_sums(const Patch<4>& x, float (&sums)[4]) {
  const int first = opaque(first_row()), own = opaque(share());
#pragma unroll
  for (float& sum : sums) sum = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float up_to = x.values[r][0] + x.values[r][1] + x.values[r][2] + x.values[r][3];
#pragma unroll
    for (int lanes = 1; lanes < kRowThreads; lanes *= 2) {
      const float other = __shfl_sync(0xFFFFFFFFU, up_to, own >= lanes ? own - lanes : own, kRowThreads);
      if (own >= lanes) up_to += other;
    }
    float before = __shfl_sync(0xFFFFFFFFU, up_to, own > 0 ? own - 1 : 0, kRowThreads);
    if (own == 0) before = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (first + r >= own * 4 + c) sums[c] += before;
      before += x.values[r][c];
    }
  }
#pragma unroll
  for (float& sum : sums) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, kRowThreads);
}

/// The rows of a sequence's chunk: none where the slot has no tokens.
struct Chunk {
  std::int64_t begin;  // its first row
  int rows;
  bool is_first, is_last;  // of the sequence
};
__device__ __forceinline__ Chunk chunk_of_sequence(std::int64_t begin, std::int64_t end, std::int64_t chunk) {
  const std::int64_t at = begin + chunk * kSide, left = end - at;
  return {at, static_cast<int>(left < kSide ? left : kSide), chunk == 0, left <= kSide};
}
__device__ __forceinline__ Chunk chunk_of_slot(const int* ends, int sequences, int slot) {
  int low = 0, high = sequences - 1;  // the last sequence whose slots don't begin behind this one
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (ends[middle] / kSide + middle <= slot) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return chunk_of_sequence(ends[low], ends[low + 1], slot - (ends[low] / kSide + low));
}

}  // namespace lorikeet::ops::tiles
