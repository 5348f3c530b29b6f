#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

// The same memory seen as a CPU tensor by what plays the card, and as a CUDA tensor by the program.
namespace lorikeet::card {

/// A CPU tensor over the card memory of `tensor`; other tensors as they are.
at::Tensor as_cpu(const at::Tensor& tensor);

/// A tensor of the card over the same memory, which it doesn't keep.
at::Tensor unowned(const at::Tensor& tensor);

/// A CPU kernel's result as a tensor of the current card: a view of the input whose memory it uses, else a
/// copy.
at::Tensor from_cpu(const at::Tensor& result, const std::vector<at::Tensor>& inputs = {});

/// Gives `tensor` the sizes, and where it was reallocated the content, that a CPU kernel gave its alias.
void take_result(const at::Tensor& tensor, const at::Tensor& alias);

}  // namespace lorikeet::card
