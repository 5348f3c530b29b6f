#pragma once

#include <ATen/core/Tensor.h>

#include "nn/batch.h"
#include "nn/linear.h"

namespace lorikeet::nn {

/// The tokens of a batch whose output is read: in training those that predict a label, in generation each
/// sequence's last. Rows of one token meet those of another in a token mixer alone (attention, a
/// gated delta net, a short convolution, a Mamba 2 layer), so that the last layer computes what comes behind
/// it, and the model its final norm and head, for these rows only. The results are those of all rows, and
/// gradients too: that of a row which isn't read is zero.
struct OutputRows {
  at::Tensor index;         ///< int64 [R] on the batch's device, each of the T tokens once at most
  Batch batch;              ///< of R rows: only position_ids and sample_ids are filled in
  std::int64_t tokens = 0;  ///< T
};

/// What rows of the tokens `index` (int64) have of `batch`, in that order: position_ids and sample_ids alone.
Batch ids_of_rows(const Batch& batch, const at::Tensor& index);

/// The tokens `index` of `batch`.
OutputRows output_rows(const Batch& batch, const at::Tensor& index);

/// The output rows [R, width] of x [T, width]; x itself where the context has none.
at::Tensor read_rows(const at::Tensor& x, const ForwardContext& context);

/// read_rows' backward: dy [R, width] -> [T, width], zero where a row isn't read.
at::Tensor read_rows_backward(const at::Tensor& dy, const ForwardContext& context);

/// The context of what comes behind attention: that of the output rows.
ForwardContext behind_attention(const ForwardContext& context);

}  // namespace lorikeet::nn
