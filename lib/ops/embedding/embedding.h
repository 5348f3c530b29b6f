#pragma once

#include <ATen/core/Tensor.h>

#include "base/dtype.h"
#include "ops/lora/lora_linear.h"
#include "ops/weight_format.h"

namespace lorikeet::ops {

/// Rows of a frozen table [V, D]. ids: int64 [T], each in [0, V). Returns [T, D] in `out`. Throws Error when
/// ids isn't an int64 vector (an id out of range is the kernel's error).
at::Tensor embedding(const at::Tensor& ids, const FrozenMatrix& table, DType out);

/// The same of table + scale * b a, with the low-rank update of a table [V, D]: b [V, r] and a [r, D], in the
/// dtype `out`, as LoraProjection has them for a weight of V outputs and D inputs.
at::Tensor lora_embedding(const at::Tensor& ids, const FrozenMatrix& table, const LoraProjection& update,
                          DType out);

/// Backward of the same, from dy [T, D]: adds the gradients of b and, unless its grad_a is undefined, of a,
/// and marks them as reached. The row of b that is `padding`'s gets none, a does from it: as PEFT's lookup of
/// `lora_embedding_A`, which has the table's padding_idx.
void lora_embedding_backward(const at::Tensor& dy, const at::Tensor& ids, const LoraProjection& update,
                             std::int64_t padding = -1);

/// gradient[ids[t]] += scale * dy[t] for all t: the gradient of a lookup. dy: [T, D] of any floating dtype;
/// ids: int64 [T]; gradient: [V, D] in fp32 (fp64 for fp64 dy) or, rounded at each addition, in 16 bits. Rows
/// of one id are added in the order of t, whatever the number of threads. Positions of the id `padding` are
/// left out (torch.nn.Embedding's padding_idx); -1: none.
void embedding_backward(at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& ids, double scale = 1,
                        std::int64_t padding = -1);

}  // namespace lorikeet::ops
