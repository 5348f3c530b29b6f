#include "kernels.h"

#include <cstddef>
#include <string>

#include "ops/activation/activation_cuda.h"
#include "ops/adamw/adamw_cuda.h"
#include "ops/linear_cross_entropy/softmax_cuda.h"
#include "ops/lora/dora_cuda.h"
#include "ops/lora/dropout_mask.h"
#include "ops/norm/norm_cuda.h"
#include "ops/norm_of_gated/norm_of_gated_cuda.h"
#include "ops/qk_norm/qk_norm_cuda.h"
#include "ops/rotary/rotary_cuda.h"

namespace lorikeet::bench {
namespace {

using ops::HeadLayout;
using ops::HeadsOnDevice;

constexpr auto kElement = ops::CudaElement::kBF16;
constexpr std::int64_t kBF16 = 2, kFP32 = 4, kId = 8;  // bytes
constexpr float kEps = 1e-6F;
// Of weights, and of rows' reciprocal standard deviations, which must be positive.
constexpr Normal kNearOne{1.0F, 0.1F};

std::string heads(std::int64_t rows, const HeadLayout& layout) {
  return matrix(rows, layout.width()) + ", heads " + std::to_string(layout.heads) + " + " +
         std::to_string(layout.kv_heads);
}

void add_norm_forward(std::vector<Case>& to, std::int64_t tokens, std::int64_t width, bool with_delta) {
  to.push_back({.kernel = with_delta ? "add_norm forward" : "norm forward",
                .shape = matrix(tokens, width),
                .bytes = (with_delta ? 4 : 2) * tokens * width * kBF16 + width * kBF16 + tokens * kFP32,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const ops::NormRows rows{.tokens = tokens, .heads = 1, .width = width};
                  const std::int64_t count = tokens * width;
                  const ops::NormForwardOnDevice in{.x = memory.bf16(count),
                                                    .x_stride = width,
                                                    .delta = with_delta ? memory.bf16(count) : nullptr,
                                                    .sum = with_delta ? memory.bf16(count) : nullptr,
                                                    .scale = {.weight = memory.bf16(width, kNearOne),
                                                              .bias = nullptr,
                                                              .is_fp32 = false,
                                                              .offset = 0},
                                                    .eps = kEps,
                                                    .y = memory.bf16(count),
                                                    .y_stride = width,
                                                    .mean = nullptr,
                                                    .rstd = memory.fp32(tokens)};
                  return [=](cudaStream_t stream) { ops::launch_norm_forward(kElement, rows, in, stream); };
                }});
}

// Of gradients in, the input and the gradient out; `matrices`: 3, with what comes past the norm 4, with its
// result again 5.
void add_norm_backward(std::vector<Case>& to, std::int64_t tokens, std::int64_t width, int matrices) {
  const std::int64_t count = tokens * width;
  const bool with_extra = matrices > 3, with_again = matrices > 4;
  to.push_back({.kernel = with_again   ? "norm backward with extra and result"
                          : with_extra ? "norm backward with extra"
                                       : "norm backward",
                .shape = matrix(tokens, width),
                .bytes = matrices * count * kBF16 + width * kBF16 + tokens * kFP32,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const ops::NormRows rows{.tokens = tokens, .heads = 1, .width = width};
                  const ops::NormBackwardOnDevice in{.dy = memory.bf16(count),
                                                     .dy_stride = width,
                                                     .extra = with_extra ? memory.bf16(count) : nullptr,
                                                     .extra_stride = with_extra ? width : 0,
                                                     .x = memory.bf16(count),
                                                     .x_stride = width,
                                                     .scale = {.weight = memory.bf16(width, kNearOne),
                                                               .bias = nullptr,
                                                               .is_fp32 = false,
                                                               .offset = 0},
                                                     .mean = nullptr,
                                                     .rstd = memory.fp32(tokens, kNearOne),
                                                     .dx = memory.bf16(count),
                                                     .dx_stride = width,
                                                     .again = with_again ? memory.bf16(count) : nullptr};
                  return [=](cudaStream_t stream) { ops::launch_norm_backward(kElement, rows, in, stream); };
                }});
}

ops::QkNormOnDevice qk_norm_on_device(DeviceMemory& memory, std::int64_t tokens, const HeadLayout& layout) {
  return {.rows = tokens,
          .layout = layout,
          .q_weight = memory.bf16(layout.head_dim, kNearOne),
          .k_weight = memory.bf16(layout.head_dim, kNearOne),
          .is_fp32 = false,
          .offset = 0,
          .eps = kEps,
          .cos = memory.fp32(tokens * layout.head_dim / 2),
          .sin = memory.fp32(tokens * layout.head_dim / 2)};
}

// Gradients of queries, keys and values, each a tensor of its own.
HeadsOnDevice heads_on_device(DeviceMemory& memory, std::int64_t tokens, const HeadLayout& layout) {
  const std::int64_t q_row = layout.heads * layout.head_dim, kv_row = layout.kv_heads * layout.head_dim;
  return {.q = memory.bf16(tokens * q_row),
          .k = memory.bf16(tokens * kv_row),
          .v = memory.bf16(tokens * kv_row),
          .q_row = q_row,
          .k_row = kv_row,
          .v_row = kv_row};
}

void add_qk_norm(std::vector<Case>& to, std::int64_t tokens, const HeadLayout& layout) {
  const std::int64_t qk_heads = layout.heads + layout.kv_heads, count = tokens * layout.width();
  // Angles, weights, and a statistic for each head of queries and keys.
  const std::int64_t small =
      tokens * layout.head_dim * kFP32 + 2 * layout.head_dim * kBF16 + tokens * qk_heads * kFP32;
  to.push_back({.kernel = "qk_norm forward",
                .shape = heads(tokens, layout),
                .bytes = 2 * count * kBF16 + small,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const auto in = qk_norm_on_device(memory, tokens, layout);
                  void* const qkv = memory.bf16(count);
                  void* const out = memory.bf16(count);
                  float* const q_rstd = memory.fp32(tokens * layout.heads);
                  float* const k_rstd = memory.fp32(tokens * layout.kv_heads);
                  return [=](cudaStream_t stream) {
                    ops::launch_norm_and_rotate(kElement, in, qkv, out, q_rstd, k_rstd, stream);
                  };
                }});
  // Values' gradients are moved to their place alone.
  to.push_back({.kernel = "qk_norm backward",
                .shape = heads(tokens, layout),
                .bytes = 2 * count * kBF16 + tokens * qk_heads * layout.head_dim * kBF16 + small,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const auto in = qk_norm_on_device(memory, tokens, layout);
                  void* const qkv = memory.bf16(count);
                  const HeadsOnDevice gradients = heads_on_device(memory, tokens, layout);
                  void* const dqkv = memory.bf16(count);
                  float* const q_rstd = memory.fp32(tokens * layout.heads, kNearOne);
                  float* const k_rstd = memory.fp32(tokens * layout.kv_heads, kNearOne);
                  return [=](cudaStream_t stream) {
                    ops::launch_norm_and_rotate_backward(kElement, in, gradients, qkv, q_rstd, k_rstd, dqkv,
                                                         stream);
                  };
                }});
}

void add_rotary(std::vector<Case>& to, std::int64_t tokens, const HeadLayout& layout) {
  const std::int64_t half = layout.head_dim / 2, rotated = (layout.heads + layout.kv_heads) * layout.head_dim;
  to.push_back({.kernel = "rotary",
                .shape = heads(tokens, layout),
                .bytes = 2 * tokens * rotated * kBF16 + 2 * tokens * half * kFP32,
                .make = [=](DeviceMemory& memory) -> Launch {
                  void* const qkv = memory.bf16(tokens * layout.width());
                  // Of a turn's size: a buffer is turned thousands of times.
                  const float* const cos = memory.fp32(tokens * half, {0.7F, 0.01F});
                  const float* const sin = memory.fp32(tokens * half, {0.7F, 0.01F});
                  return [=](cudaStream_t stream) {
                    ops::launch_rotary(kElement, qkv, cos, sin, tokens, layout, half, /*inverse=*/false,
                                       stream);
                  };
                }});
  to.push_back({.kernel = "rotary backward",
                .shape = heads(tokens, layout),
                .bytes = 2 * tokens * layout.width() * kBF16 + 2 * tokens * half * kFP32,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const HeadsOnDevice gradients = heads_on_device(memory, tokens, layout);
                  const float* const cos = memory.fp32(tokens * half);
                  const float* const sin = memory.fp32(tokens * half);
                  void* const packed = memory.bf16(tokens * layout.width());
                  return [=](cudaStream_t stream) {
                    ops::launch_rotary_backward(kElement, gradients, cos, sin, tokens, layout, half, packed,
                                                stream);
                  };
                }});
}

void add_gated_activation(std::vector<Case>& to, std::int64_t tokens, std::int64_t width) {
  const std::int64_t count = tokens * width;
  to.push_back({.kernel = "gated activation forward",
                .shape = matrix(tokens, width),
                .bytes = 3 * count * kBF16,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const void* const gate_up = memory.bf16(2 * count);
                  void* const out = memory.bf16(count);
                  return [=](cudaStream_t stream) {
                    ops::launch_gated_forward(kElement, ops::Activation::kSilu, gate_up, tokens, width, out,
                                              stream);
                  };
                }});
  for (const bool with_product : {false, true}) {
    to.push_back(
        {.kernel = with_product ? "gated activation backward with product" : "gated activation backward",
         .shape = matrix(tokens, width),
         .bytes = (with_product ? 6 : 5) * count * kBF16,
         .make = [=](DeviceMemory& memory) -> Launch {
           const void* const dy = memory.bf16(count);
           void* const gate_up = memory.bf16(2 * count);
           void* const product = with_product ? memory.bf16(count) : nullptr;
           return [=](cudaStream_t stream) {
             ops::launch_gated_backward(kElement, ops::Activation::kSilu, dy, tokens, width, gate_up, product,
                                        stream);
           };
         }});
  }
}

void add_norm_of_gated(std::vector<Case>& to, std::int64_t tokens, std::int64_t groups, std::int64_t group) {
  const std::int64_t width = groups * group, count = tokens * width;
  const auto on_device = [=](DeviceMemory& memory) -> ops::NormOfGatedOnDevice {
    return {.rows = tokens,
            .groups = groups,
            .width = group,
            .x = memory.bf16(count),
            .z = memory.bf16(count),
            .z_row = width,
            .weight = memory.bf16(width, kNearOne),
            .is_fp32 = false,
            .eps = kEps};
  };
  const std::string shape = matrix(tokens, width) + ", " + std::to_string(groups) + " groups";
  to.push_back({.kernel = "norm_of_gated forward",
                .shape = shape,
                .bytes = 3 * count * kBF16 + width * kBF16,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const ops::NormOfGatedOnDevice in = on_device(memory);
                  void* const y = memory.bf16(count);
                  return [=](cudaStream_t stream) { ops::launch_norm_of_gated(kElement, in, y, stream); };
                }});
  for (const bool with_result : {false, true}) {
    to.push_back({.kernel = with_result ? "norm_of_gated backward with result" : "norm_of_gated backward",
                  .shape = shape,
                  .bytes = (with_result ? 6 : 5) * count * kBF16 + width * kBF16,
                  .make = [=](DeviceMemory& memory) -> Launch {
                    const ops::NormOfGatedOnDevice in = on_device(memory);
                    void* const dy = memory.bf16(count);
                    void* const dz = memory.bf16(count);
                    void* const again = with_result ? memory.bf16(count) : nullptr;
                    return [=](cudaStream_t stream) {
                      ops::launch_norm_of_gated_backward(kElement, in, dy, dz, width, again, stream);
                    };
                  }});
  }
}

void add_softmax(std::vector<Case>& to, std::int64_t rows, std::int64_t width, bool gradient) {
  to.push_back({.kernel = gradient ? "softmax with gradient" : "softmax",
                .shape = matrix(rows, width),
                .bytes = (gradient ? 2 : 1) * rows * width * kBF16 + rows * (kId + kFP32),
                .make = [=](DeviceMemory& memory) -> Launch {
                  const ops::SoftmaxNllOnDevice in{.logits = memory.bf16(rows * width),
                                                   .rows = rows,
                                                   .width = width,
                                                   .labels = memory.integers(rows, width),
                                                   .scale = 1,
                                                   .soft_cap = 0,
                                                   .gradient = gradient,
                                                   .grad_scale = 1,
                                                   .nll = memory.fp32(rows)};
                  return [=](cudaStream_t stream) { ops::launch_softmax_nll(kElement, in, stream); };
                }});
}

void add_adamw(std::vector<Case>& to, std::int64_t parameters) {
  // Three launches. Read: values, gradients, both moments. Written: the same, the gradients with zeros, and
  // the bf16 copy.
  to.push_back({.kernel = "adamw",
                .shape = std::to_string(parameters) + " parameters",
                .bytes = parameters * (8 * kFP32 + kBF16),
                .make = [=](DeviceMemory& memory) -> Launch {
                  const ops::AdamWOnDevice in{.values = memory.fp32(parameters),
                                              .gradients = memory.fp32(parameters),
                                              .exp_avg = memory.fp32(parameters),
                                              .exp_avg_sq = memory.fp32(parameters, kNearOne),
                                              .updates = memory.fp32(1, kNearOne),
                                              .compute = memory.bf16(parameters),
                                              .n = parameters,
                                              .partial_sums = memory.fp32(ops::kAdamWPartialSums),
                                              .scalars = memory.fp32(ops::kAdamWScalars),
                                              .norm = memory.fp32(1)};
                  const ops::AdamWStep step{.lr = 1e-4,
                                            .beta1 = 0.9,
                                            .beta2 = 0.999,
                                            .eps = 1e-8,
                                            .weight_decay = 0.01,
                                            .clip_grad_norm = 1,
                                            .gradient_scale = 1};
                  return [=](cudaStream_t stream) { ops::launch_adamw(kElement, in, step, stream); };
                }});
}

void add_dora(std::vector<Case>& to, std::int64_t rows, std::int64_t cols) {
  const std::int64_t count = rows * cols;
  const std::int64_t sums = (rows + ops::kScaleColumnsRows - 1) / ops::kScaleColumnsRows * cols;
  to.push_back({.kernel = "dora forward",
                .shape = matrix(rows, cols),
                .bytes = 2 * count * kBF16 + cols * kFP32,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const void* const x = memory.bf16(count);
                  const float* const factors = memory.fp32(cols, kNearOne);
                  void* const y = memory.bf16(count);
                  return [=](cudaStream_t stream) {
                    ops::launch_scale_columns(kElement, x, factors, nullptr, rows, cols, y, stream);
                  };
                }});
  to.push_back({.kernel = "dora backward",
                .shape = matrix(rows, cols),
                .bytes = 3 * count * kBF16 + (cols + sums) * kFP32,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const void* const dy = memory.bf16(count);
                  const void* const x = memory.bf16(count);
                  const float* const factors = memory.fp32(cols, kNearOne);
                  void* const dx = memory.bf16(count);
                  float* const sums_out = memory.fp32(sums);
                  return [=](cudaStream_t stream) {
                    ops::launch_scale_columns_backward(kElement, dy, x, factors, rows, cols, dx, sums_out,
                                                       stream);
                  };
                }});
}

void add_dropout(std::vector<Case>& to, std::int64_t rows, std::int64_t features) {
  to.push_back({.kernel = "dropout",
                .shape = matrix(rows, features),
                .bytes = 2 * rows * features * kBF16 + 2 * rows * kId,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const void* const x = memory.bf16(rows * features);
                  void* const out = memory.bf16(rows * features);
                  const std::int64_t* const samples = memory.integers(rows, 100000);
                  const std::int64_t* const positions = memory.integers(rows, rows);
                  const auto key = ops::dropout_key(/*seed=*/1, /*step=*/2, /*group=*/3, /*p=*/0.1);
                  return [=](cudaStream_t stream) {
                    ops::launch_dropout(kElement, x, out, rows, features, samples, positions, key, stream);
                  };
                }});
}

}  // namespace

std::vector<Case> bf16_kernels(std::int64_t tokens) {
  std::vector<Case> cases;
  const std::int64_t widths[] = {1024, 2048, 2560, 4096, 5120, 8192};
  for (const bool with_delta : {false, true})
    for (const std::int64_t width : widths) add_norm_forward(cases, tokens, width, with_delta);
  for (const int matrices : {3, 4, 5})
    for (const std::int64_t width : widths) add_norm_backward(cases, tokens, width, matrices);
  constexpr HeadLayout kQwen3Small{16, 8, 128}, kQwen3Large{32, 8, 128}, kLlama{32, 8, 128};
  add_qk_norm(cases, tokens, kQwen3Small);
  add_qk_norm(cases, tokens, kQwen3Large);
  add_rotary(cases, tokens, kLlama);
  for (const std::int64_t width : {3072, 9728, 14336}) add_gated_activation(cases, tokens, width);
  for (const std::int64_t groups : {1, 8})
    for (const std::int64_t width : {4096, 8192}) add_norm_of_gated(cases, tokens, groups, width / groups);
  for (const bool gradient : {false, true})
    for (const std::int64_t vocabulary : {151936, 128256}) add_softmax(cases, 1024, vocabulary, gradient);
  for (const std::int64_t parameters : {10'000'000, 42'000'000}) add_adamw(cases, parameters);
  add_dora(cases, tokens, 4096);
  add_dropout(cases, tokens, 4096);
  return cases;
}

Case device_copy() {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  return {
      .kernel = "cudaMemcpyAsync on the card",
      .shape = "1 GiB",
      .bytes = 2 * kBytes,
      .make = [](DeviceMemory& memory) -> Launch {
        const void* const from = memory.bytes(kBytes);
        void* const to = memory.bytes(kBytes);
        return [=](cudaStream_t stream) {
          check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(kBytes), cudaMemcpyDeviceToDevice, stream),
                "cudaMemcpyAsync");
        };
      },
      .in_graph = false};
}

}  // namespace lorikeet::bench
