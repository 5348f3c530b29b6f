#include "train/evaluation.h"

#include <ATen/ATen.h>

#include <numeric>
#include <vector>

#include "nn/batch.h"
#include "train/device_batch.h"

namespace lorikeet::train {

Evaluation evaluate(const nn::CausalLM& model, const data::TokenDataset& dataset,
                    const data::MicroOptions& micro, const at::Device& device) {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < dataset.size(); ++i) lengths.push_back(dataset.length(i));
  Evaluation result;
  for (const auto& group : data::group_examples(lengths, micro)) {
    const nn::Batch batch = to_device(data::make_micro_batch(dataset, group), device);
    if (batch.label_count == 0) continue;
    const at::Tensor nll = model.token_nll({.batch = batch}).cpu().contiguous();
    // Summed as double: the sum of a large set must not lose the small terms.
    const float* values = nll.const_data_ptr<float>();
    result.nll_sum += std::accumulate(values, values + nll.numel(), 0.0);
    result.label_tokens += batch.label_count;
  }
  return result;
}

}  // namespace lorikeet::train
