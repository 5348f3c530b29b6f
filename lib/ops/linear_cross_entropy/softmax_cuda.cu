// A block a row: a first pass finds the largest value and the sum of exponentials at once (Milakov &
// Gimelshein 2018, "Online normalizer calculation for softmax"), a second one writes the gradient.
#include "ops/linear_cross_entropy/softmax_cuda.h"

#include <type_traits>

#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

constexpr int kWarp = 32, kThreads = 512;

// The sum of exp(value - largest) over some values.
struct Exponentials {
  float largest, sum;
};

__device__ __forceinline__ Exponentials combine(const Exponentials& a, const Exponentials& b) {
  const float largest = fmaxf(a.largest, b.largest);
  // Equal ones may both be minus infinity, whose difference is no number.
  const float of_a = a.largest == largest ? a.sum : a.sum * expf(a.largest - largest);
  const float of_b = b.largest == largest ? b.sum : b.sum * expf(b.largest - largest);
  return {largest, of_a + of_b};
}

// Those of all threads, in each of them.
__device__ __forceinline__ Exponentials combine_threads(Exponentials own) {
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    own = combine(own, {__shfl_xor_sync(0xFFFFFFFFU, own.largest, lanes),
                        __shfl_xor_sync(0xFFFFFFFFU, own.sum, lanes)});
  }
  __shared__ float largest[kThreads / kWarp];
  __shared__ float sums[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) {
    largest[threadIdx.x / kWarp] = own.largest;
    sums[threadIdx.x / kWarp] = own.sum;
  }
  __syncthreads();
  Exponentials all{largest[0], sums[0]};
  for (int warp = 1; warp < kThreads / kWarp; ++warp) all = combine(all, {largest[warp], sums[warp]});
  return all;
}

// Scale and soft cap.
struct Form {
  float scale, cap;

  __device__ __forceinline__ float value(float logit) const {
    return cap > 0 ? cap * tanhf(logit * scale / cap) : logit * scale;
  }
  // d value / d logit
  __device__ __forceinline__ float slope(float value) const {
    return cap > 0 ? (1.0F - (value / cap) * (value / cap)) * scale : scale;
  }
};

template <int value>
using Count = std::integral_constant<int, value>;

// Calls f(i, count) once for each element of a row, `count` of them from i on, in accesses of 16 bytes where
// the row has them.
template <typename T, typename F>
__device__ __forceinline__ void visit_row(const T* row, int width, const F& f) {
  constexpr int n = device::kElements<T, true>;
  const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % device::kVectorBytes);
  const int until_aligned =
      past == 0 ? 0 : (static_cast<int>(device::kVectorBytes) - past) / static_cast<int>(sizeof(T));
  const int lead = until_aligned < width ? until_aligned : width;
  const int packed = (width - lead) / n * n;
  for (int i = static_cast<int>(threadIdx.x) * n; i < packed; i += kThreads * n) f(lead + i, Count<n>());
#pragma unroll 1  // what lies before and behind: unrolled, these few take registers that blocks could use
  for (int i = static_cast<int>(threadIdx.x); i < width - packed; i += kThreads)
    f(i < lead ? i : packed + i, Count<1>());
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    softmax_nll_kernel(T* logits, int width, const std::int64_t* labels, Form form, bool gradient,
                       float grad_scale, float* nll) {
  const std::int64_t row = blockIdx.x;
  T* const in = logits + row * width;
  const std::int64_t label = labels[row];
  const bool is_valid = label >= 0 && label < width;
  const float of_label = is_valid ? form.value(device::widen(in[label])) : nanf("");

  Exponentials own{-INFINITY, 0};
  visit_row(in, width, [&](int i, auto count) {
    constexpr int n = decltype(count)::value;
    float values[n];
    device::unpack<T, n>(device::load_pack<n>(in + i), values);
    float largest = own.largest;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      values[j] = form.value(values[j]);
      largest = fmaxf(largest, values[j]);
    }
    // Where all are minus infinity no difference is a number.
    const float origin = largest == -INFINITY ? 0.0F : largest;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < n; ++j) sum += expf(values[j] - origin);
    own = combine(own, {largest, sum});
  });
  const Exponentials all = combine_threads(own);  // and all have read the label's logit
  if (threadIdx.x == 0) nll[row] = logf(all.sum) + (all.largest - of_label);
  if (!gradient) return;

  const float factor = is_valid ? grad_scale : nanf("");
  const float over_sum = 1.0F / all.sum;
  visit_row(in, width, [&](int i, auto count) {
    constexpr int n = decltype(count)::value;
    float values[n];
    device::unpack<T, n>(device::load_pack<n>(in + i), values);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float value = form.value(values[j]);
      const float probability = expf(value - all.largest) * over_sum;
      values[j] = (probability - (i + j == label ? 1.0F : 0.0F)) * (form.slope(value) * factor);
    }
    device::store_pack<n>(device::pack<T, n>(values), in + i);
  });
}

}  // namespace

void launch_softmax_nll(CudaElement element, const SoftmaxNllOnDevice& in, void* stream) {
  if (in.rows == 0 || in.width == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    softmax_nll_kernel<T><<<static_cast<unsigned>(in.rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<T*>(in.logits), static_cast<int>(in.width), in.labels, Form{in.scale, in.soft_cap},
        in.gradient, in.grad_scale, in.nll);
  });
  device::check_launch("linear_cross_entropy", cudaGetLastError());
}

}  // namespace lorikeet::ops
