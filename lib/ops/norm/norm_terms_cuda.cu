// A block takes eight whole rows, and a warp a tile of them (cuda_low_rank_tile.h) at a time. The rounded
// sums stay in registers until the rows' statistics are known.
//
// A layer that is computed again norms the sum without a term (norm_cuda.cu), and has to get the same bits:
// so statistics are summed in the order of that kernel. Its thread t has the packs t and t + threads of a
// row. They are those of this kernel's warp t / 32, group t % 8 and turn t / 8 % 4; that kernel's shuffles
// over 16 and 8 lanes are sums over turns here.
#include "ops/norm/norm_terms_cuda.h"

#include <type_traits>

#include "ops/cuda_low_rank_tile.h"
#include "ops/norm/load_parameters.h"

namespace lorikeet::ops {
namespace {

using device::kLaneColumns;
using device::kLaneRows;
using device::kTileGroups;
using device::kTileRows;
using device::kWarp;
using device::load_pack;
using device::load_parameters;
using device::Pack;
using device::Ranks;
using device::ranks_of_row;
using device::store_pack;
using device::Sum;
using device::unpack;

constexpr int kTurns = kWarp / kTileGroups, kParts = 2;  // packs of a lane: kParts in each turn
constexpr int kMostWarps = 16;
static_assert(kMostWidthWithTerm == kMostWarps * kWarp * kParts * kLaneColumns);

// A lane's packs of a row.
template <typename T>
using Packs = Pack<T, kLaneColumns>[kTurns][kParts][kLaneRows];

// The sums over each of a lane's rows, in all lanes that have numbers of these: f(row, number, sum) adds a
// number to one of the sums of turns. `is_there(t, k)`: whether there is a pack k in turn t.
template <typename T, typename F, typename IsThere>
__device__ __forceinline__ void sum_rows(const Packs<T>& kept, const IsThere& is_there,
                                         float (&partial)[kMostWarps][kTileRows], const F& f,
                                         float (&sums)[kLaneRows]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first = lane % device::kQuarters * kLaneRows;
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
    float of_turn[kTurns];
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      of_turn[t] = 0;
#pragma unroll
      for (int k = 0; k < kParts; ++k) {
        if (!is_there(t, k)) continue;
        float values[kLaneColumns];
        unpack<T, kLaneColumns>(kept[t][k][i], values);
#pragma unroll
        for (int j = 0; j < kLaneColumns; ++j) f(i, values[j], of_turn[t]);
      }
    }
    float sum = (of_turn[0] + of_turn[2]) + (of_turn[1] + of_turn[3]);
#pragma unroll
    for (int lanes = kWarp / 2; lanes >= device::kQuarters; lanes /= 2)
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, lanes);
    if (lane < device::kQuarters) partial[warp][first + i] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
    sums[i] = 0;
    for (unsigned w = 0; w < blockDim.x / kWarp; ++w) sums[i] += partial[w][first + i];
  }
  __syncthreads();  // the next sums are written there
}

template <typename T, int rank>
__global__ void __launch_bounds__(kMostWarps* kWarp, 1)
    add_norm_kernel(std::int64_t rows, int width, const T* x, const T* delta, T* sum, const T* left,
                    std::int64_t left_row, const T* right, float scale, const void* weight, const void* bias,
                    bool is_fp32, float offset, float eps, T* y, float* means, float* rstds) {
  __shared__ float partial[kMostWarps][kTileRows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = lane / device::kQuarters, quarter = lane % device::kQuarters;
  const int apart = static_cast<int>(blockDim.x) * kLaneColumns;  // of a lane's parts
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * kTileRows;
  const int rows_here = rows - row0 < kTileRows ? static_cast<int>(rows - row0) : kTileRows,
            row = quarter * kLaneRows;
  const int column = (warp * kWarp + group) * kLaneColumns;
  const std::int64_t at = (row0 + row) * width + column;  // of a lane's first numbers
  const auto count = static_cast<float>(width);
  const auto offset_of = [&](int t, int k) { return t * kTileGroups * kLaneColumns + k * apart; };
  const int columns_left = width - column;
  const auto is_column = [&](int t, int k) { return offset_of(t, k) < columns_left; };
  const auto is_row = [&](int i) { return row + i < rows_here; };

  Ranks row_ranks = {};
  if (group < rows_here) row_ranks = ranks_of_row(left + (row0 + group) * left_row, rank, quarter);
  Packs<T> kept;
  Pack<T, kLaneColumns> deltas[2][kLaneRows];
  const auto load = [&](int n) {
    const int k = n / kTurns, t = n % kTurns;
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      const std::int64_t from = at + i * static_cast<std::int64_t>(width) + offset_of(t, k);
      const bool is_there = is_row(i) && is_column(t, k);
      kept[t][k][i] = is_there ? load_pack<kLaneColumns>(x + from) : Pack<T, kLaneColumns>{};
      deltas[n % 2][i] = is_there ? load_pack<kLaneColumns>(delta + from) : Pack<T, kLaneColumns>{};
    }
  };
  load(0);
#pragma unroll
  for (int n = 0; n < kTurns * kParts; ++n) {
    const int k = n / kTurns, t = n % kTurns;
    if (n + 1 < kTurns * kParts) load(n + 1);
    device::end_of_loads();
    if (offset_of(t, k) >= columns_left + group * kLaneColumns) continue;  // of the whole warp
    const bool is_there = is_column(t, k);
#pragma unroll
    for (int j = 0; j < device::kTileProducts; ++j) {
      Ranks columns[2] = {};
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (is_there)
          columns[c] =
              ranks_of_row(right + (column + offset_of(t, k)) * rank + (2 * j + c) * rank, rank, quarter);
      }
      const Sum term = device::product_of_ranks<T>(columns[0], columns[1], row_ranks);
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        float values[2], more[2];
        unpack<T, 2>(Pack<T, 2>{{kept[t][k][i].words[j]}}, values);
        unpack<T, 2>(Pack<T, 2>{{deltas[n % 2][i].words[j]}}, more);
        // A sum's second half is of the second column.
#pragma unroll
        for (int c = 0; c < 2; ++c) values[c] += more[c] + scale * term.values[2 * c + i];
        kept[t][k][i].words[j] = device::pack<T, 2>(values).words[0];
      }
    }
  }
  // Calls f(pack, i, offset, where the pack begins) for the packs that there are.
  const auto visit = [&](const auto& f) {
#pragma unroll
    for (int n = 0; n < kTurns * kParts; ++n) {
      const int k = n / kTurns, t = n % kTurns;
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        if (is_row(i) && is_column(t, k))
          f(kept[t][k][i], i, offset_of(t, k), at + i * static_cast<std::int64_t>(width) + offset_of(t, k));
      }
    }
  };
  // Stored after all loads: the compiler moves no load above a store that may alias.
  visit([&](const auto& pack, int, int, std::int64_t to) { store_pack<kLaneColumns>(pack, sum + to); });

  float mean[kLaneRows] = {}, rstd[kLaneRows];
  if (means != nullptr) {
    sum_rows<T>(kept, is_column, partial, [](int, float value, float& total) { total += value; }, mean);
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) mean[i] /= count;
  }
  sum_rows<T>(
      kept, is_column, partial,
      [&](int i, float value, float& squares) { squares += (value - mean[i]) * (value - mean[i]); }, rstd);
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
    rstd[i] = 1.0F / sqrtf(rstd[i] / count + eps);
    if (warp == 0 && group == 0 && is_row(i)) {
      rstds[row0 + row + i] = rstd[i];
      if (means != nullptr) means[row0 + row + i] = mean[i];
    }
  }
  visit([&](const auto& pack, int i, int offset_in_row, std::int64_t to) {
    float w[kLaneColumns], values[kLaneColumns];
    load_parameters<T, kLaneColumns>(weight, is_fp32, column + offset_in_row, offset, w);
    unpack<T, kLaneColumns>(pack, values);
#pragma unroll
    for (int j = 0; j < kLaneColumns; ++j) values[j] -= mean[i];
    store_pack<kLaneColumns>(device::scaled<T>(values, w, rstd[i], bias, is_fp32, column + offset_in_row),
                             y + to);
  });
}

template <typename T, int rank>
void launch(const NormRows& rows, const NormForwardOnDevice& in, const LowRankOnDevice& term,
            cudaStream_t stream) {
  // As many as norm_cuda.cu takes for a row of so many packs.
  const unsigned warps = device::blocks_of(rows.width / kLaneColumns, kWarp * kParts);
  add_norm_kernel<T, rank><<<device::blocks_of(rows.tokens, kTileRows), warps * kWarp, 0, stream>>>(
      rows.tokens, static_cast<int>(rows.width), static_cast<const T*>(in.x), static_cast<const T*>(in.delta),
      static_cast<T*>(in.sum), static_cast<const T*>(term.left), term.left_row,
      static_cast<const T*>(term.right), term.scale, in.scale.weight, in.scale.bias, in.scale.is_fp32,
      in.scale.offset, in.eps, static_cast<T*>(in.y), in.mean, in.rstd);
}

}  // namespace

void launch_norm_forward(CudaElement element, const NormRows& rows, const NormForwardOnDevice& in,
                         const LowRankOnDevice& term, void* stream) {
  if (rows.tokens == 0 || rows.width == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  device::dispatch_16_bits(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    if (term.rank == 8) {
      launch<T, 8>(rows, in, term, on);
    } else {
      launch<T, 16>(rows, in, term, on);
    }
  });
  device::check_launch("norm", cudaGetLastError());
}

}  // namespace lorikeet::ops
