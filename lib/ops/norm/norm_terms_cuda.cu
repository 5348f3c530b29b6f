// A block takes eight whole rows. A warp takes 64 columns of them at a time, as four products [16, 8] of
// columns by rows: the term's right operand is a product's left one, so that eight rows are enough for one.
// Row m of product j is the warp's column 8 (m % 8) + 2j + m / 8, so that a lane's sums of a row are 8
// neighbours, 16 bytes. The rounded sums stay in registers until the rows' statistics are known.
#include "ops/norm/norm_terms_cuda.h"

#include <type_traits>

#include "ops/cuda_low_rank.h"
#include "ops/norm/load_parameters.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::load_parameters;
using device::Pack;
using device::Ranks;
using device::ranks_of_row;
using device::store_pack;
using device::Sum;
using device::unpack;

constexpr int kWarp = 32, kRows = 8, kLaneRows = kRows / device::kQuarters;
constexpr int kEach = 8;  // columns of a lane: 16 bytes
constexpr int kColumns = kWarp / device::kQuarters * kEach;
constexpr int kThreadsAtOnce = 512;  // of a multiprocessor: 128 registers each

// The sums of a lane's rows over all lanes that have numbers of these.
template <int warps>
__device__ __forceinline__ void sum_rows(float (&values)[kLaneRows], float (&partial)[warps][kRows], int lane,
                                         int warp) {
  const int first = lane % device::kQuarters * kLaneRows;
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
#pragma unroll
    for (int lanes = kWarp / 2; lanes >= device::kQuarters; lanes /= 2)
      values[i] += __shfl_xor_sync(0xFFFFFFFFU, values[i], lanes);
    if (lane < device::kQuarters) partial[warp][first + i] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
    values[i] = 0;
    for (int w = 0; w < warps; ++w) values[i] += partial[w][first + i];
  }
  __syncthreads();  // the next sums are written there
}

// `parts`: of 64 columns that a warp takes at most.
template <typename T, int rank, int warps, int parts>
__global__ void __launch_bounds__(warps* kWarp, kThreadsAtOnce / (warps * kWarp))
    add_norm_kernel(std::int64_t rows, int width, const T* x, const T* delta, T* sum, const T* left,
                    std::int64_t left_row, const T* right, float scale, const void* weight, const void* bias,
                    bool is_fp32, float offset, float eps, T* y, float* means, float* rstds) {
  constexpr int kStep = warps * kColumns;  // from one of a lane's parts to the next
  __shared__ float partial[warps][kRows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = lane / device::kQuarters, quarter = lane % device::kQuarters;
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * kRows, row = row0 + quarter * kLaneRows;
  const int first = warp * kColumns, column = first + group * kEach;
  const std::int64_t at = row * width + column;  // of a lane's first numbers
  const auto count = static_cast<float>(width);
  const bool is_row[kLaneRows] = {row < rows, row + 1 < rows};

  Ranks row_ranks = {};
  if (row0 + group < rows) row_ranks = ranks_of_row(left + (row0 + group) * left_row, rank, quarter);
  Pack<T, kEach> kept[parts][kLaneRows], deltas[2][kLaneRows];
  const auto load = [&](int k) {
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      const std::int64_t from = at + i * static_cast<std::int64_t>(width) + k * kStep;
      const bool is_there = is_row[i] && column + k * kStep < width;
      kept[k][i] = is_there ? load_pack<kEach>(x + from) : Pack<T, kEach>{};
      deltas[k % 2][i] = is_there ? load_pack<kEach>(delta + from) : Pack<T, kEach>{};
    }
  };
  load(0);
#pragma unroll
  for (int k = 0; k < parts; ++k) {
    if (first + k * kStep >= width) break;  // of the whole warp
    if (k + 1 < parts) load(k + 1);
    device::end_of_loads();
    const bool is_column = column + k * kStep < width;
#pragma unroll
    for (int j = 0; j < kEach / 2; ++j) {
      Ranks columns[2] = {};
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (is_column)
          columns[c] = ranks_of_row(right + column * rank + (k * kStep + 2 * j + c) * rank, rank, quarter);
      }
      const Sum term = device::product_of_ranks<T>(columns[0], columns[1], row_ranks);
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        float values[2], more[2];
        unpack<T, 2>(Pack<T, 2>{{kept[k][i].words[j]}}, values);
        unpack<T, 2>(Pack<T, 2>{{deltas[k % 2][i].words[j]}}, more);
        // A sum's second half is of the second column.
#pragma unroll
        for (int c = 0; c < 2; ++c) values[c] += more[c] + scale * term.values[2 * c + i];
        kept[k][i].words[j] = device::pack<T, 2>(values).words[0];
      }
    }
  }
  // Calls f(k, i, where the pack begins) for the packs that there are.
  const auto visit = [&](const auto& f) {
#pragma unroll
    for (int k = 0; k < parts; ++k) {
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        if (is_row[i] && column + k * kStep < width)
          f(k, i, at + i * static_cast<std::int64_t>(width) + k * kStep);
      }
    }
  };
  // Stored after all loads: the compiler moves no load above a store that may alias.
  visit([&](int k, int i, std::int64_t to) { store_pack<kEach>(kept[k][i], sum + to); });

  float mean[kLaneRows] = {}, squares[kLaneRows] = {}, rstd[kLaneRows], values[kEach];
  if (means != nullptr) {
    visit([&](int k, int i, std::int64_t) {
      unpack<T, kEach>(kept[k][i], values);
#pragma unroll
      for (int j = 0; j < kEach; ++j) mean[i] += values[j];
    });
    sum_rows(mean, partial, lane, warp);
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) mean[i] /= count;
  }
  visit([&](int k, int i, std::int64_t) {
    unpack<T, kEach>(kept[k][i], values);
#pragma unroll
    for (int j = 0; j < kEach; ++j) squares[i] += (values[j] - mean[i]) * (values[j] - mean[i]);
  });
  sum_rows(squares, partial, lane, warp);
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
    rstd[i] = 1.0F / sqrtf(squares[i] / count + eps);
    if (warp == 0 && group == 0 && is_row[i]) {
      rstds[row + i] = rstd[i];
      if (means != nullptr) means[row + i] = mean[i];
    }
  }
  visit([&](int k, int i, std::int64_t to) {
    float w[kEach];
    load_parameters<T, kEach>(weight, is_fp32, column + k * kStep, offset, w);
    unpack<T, kEach>(kept[k][i], values);
#pragma unroll
    for (int j = 0; j < kEach; ++j) values[j] -= mean[i];
    store_pack<kEach>(device::scaled<T>(values, w, rstd[i], bias, is_fp32, column + k * kStep), y + to);
  });
}

template <int value>
using Constant = std::integral_constant<int, value>;

// Calls f with the warps of a block and the parts of each, as constants, that take rows of this width.
template <typename F>
void with_reach(std::int64_t width, const F& f) {
  if (width <= 8 * 4 * kColumns) return f(Constant<8>(), Constant<4>());
  if (width <= 8 * 8 * kColumns) return f(Constant<8>(), Constant<8>());
  static_assert(kMostWidthWithTerm == 16 * 8 * kColumns);
  f(Constant<16>(), Constant<8>());
}

template <typename T, int rank, int warps, int parts>
void launch(const NormRows& rows, const NormForwardOnDevice& in, const LowRankOnDevice& term,
            cudaStream_t stream) {
  add_norm_kernel<T, rank, warps, parts><<<device::blocks_of(rows.tokens, kRows), warps * kWarp, 0, stream>>>(
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
    with_reach(rows.width, [&](auto of_block, auto of_warp) {
      constexpr int warps = of_block, parts = of_warp;
      if (term.rank == 8) {
        launch<T, 8, warps, parts>(rows, in, term, on);
      } else {
        launch<T, 16, warps, parts>(rows, in, term, on);
      }
    });
  });
  device::check_launch("norm", cudaGetLastError());
}

}  // namespace lorikeet::ops
