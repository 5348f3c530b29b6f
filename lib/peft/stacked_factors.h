#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

// The tensors of an adapter on a parameter of experts (expert_parameters.h), and those of each expert.
namespace lorikeet::peft {

/// lora_A [experts * rank, in] of every expert's A [rank, in].
at::Tensor stacked_a(const std::vector<at::Tensor>& experts);
/// lora_B [out, rank * experts] of every expert's B [out, rank].
at::Tensor stacked_b(const std::vector<at::Tensor>& experts);

/// What one of `count` experts has of them: views.
at::Tensor expert_a(const at::Tensor& stacked, std::int64_t expert, std::int64_t count);
at::Tensor expert_b(const at::Tensor& stacked, std::int64_t expert, std::int64_t count);

}  // namespace lorikeet::peft
