#include "ops/lora/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/dry_run.h"
#include "ops/lora/dropout_mask.h"
#include "ops/reference_ops.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "dropout";

void check_arguments(const at::Tensor& x, const LoraDropout& dropout) {
  check_tensor(x.defined() && x.dim() == 2, kOp, "a matrix [tokens, features]", x);
  check(dropout.p >= 0 && dropout.p < 1, kOp, "p in [0, 1)", [&] { return std::to_string(dropout.p); });
  for (const auto* ids : {&dropout.sample_ids, &dropout.position_ids}) {
    check_tensor(ids->defined() && ids->dim() == 1 && ids->scalar_type() == at::kLong &&
                     ids->size(0) == x.size(0) && ids->device() == x.device(),
                 kOp, "int64 sample and position ids, one a row of the input and on its device", *ids);
  }
}

// One Philox call makes the words of four features.
template <typename T>
void apply_on_cpu(const T* x, T* out, std::int64_t rows, std::int64_t features, const std::int64_t* samples,
                  const std::int64_t* positions, const DropoutKey& key) {
  at::parallel_for(0, rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* from = x + row * features;
      T* to = out + row * features;
      for (std::int64_t first = 0; first < features; first += 4) {
        const auto words =
            dropout_block(key, samples[row], positions[row], static_cast<std::uint32_t>(first / 4));
        const auto count = std::min<std::int64_t>(4, features - first);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto kept = static_cast<float>(static_cast<double>(from[first + i])) * key.scale;
          to[first + i] = words.v[i] >= key.threshold ? static_cast<T>(kept) : static_cast<T>(0.0F);
        }
      }
    }
  });
}

// Without our kernel of GPUs: the mask comes from the host.
at::Tensor masked_by_host(const at::Tensor& x, const LoraDropout& dropout) {
  at::Tensor mask = at::empty(x.sizes(), x.options().dtype(wide_type(x)));
  if (!x.is_meta()) {
    LoraDropout on_host = dropout;
    on_host.sample_ids = dropout.sample_ids.cpu();
    on_host.position_ids = dropout.position_ids.cpu();
    mask.copy_(apply_dropout(at::ones(x.sizes(), mask.scalar_type()), on_host));
  }
  return (x * mask).to(x.scalar_type());
}

}  // namespace

at::Tensor apply_dropout(const at::Tensor& x, const LoraDropout& dropout) {
  check_arguments(x, dropout);
  const auto key = dropout_key(dropout.seed, dropout.step, dropout.group, dropout.p);
  const auto input = x.detach().contiguous();
  const auto samples = dropout.sample_ids.contiguous();
  const auto positions = dropout.position_ids.contiguous();
  if (reference_ops() && kernels_of(input) == at::kCUDA) return masked_by_host(input, dropout);
  auto out = at::empty_like(input);
  if (input.is_meta()) return out;
  if (input.is_cuda()) {
    check_tensor(has_cuda_elements(input), kOp, "fp32, fp16 or bf16 on a GPU", input);
    launch_on_device_of(input, [&](void* stream) {
      launch_dropout(cuda_element(input), input.const_data_ptr(), out.data_ptr(), input.size(0),
                     input.size(1), samples.const_data_ptr<std::int64_t>(),
                     positions.const_data_ptr<std::int64_t>(), key, stream);
    });
    return out;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), kOp, [&] {
    apply_on_cpu(input.const_data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), input.size(0), input.size(1),
                 samples.const_data_ptr<std::int64_t>(), positions.const_data_ptr<std::int64_t>(), key);
  });
  return out;
}

}  // namespace lorikeet::ops
