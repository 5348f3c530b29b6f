#include "train/evaluation.h"

#include <ATen/ATen.h>

#include <vector>

#include "nn/batch.h"
#include "train/device_batch.h"

namespace lorikeet::train {

Evaluation evaluate(const nn::CausalLM& model, const data::TokenDataset& dataset,
                    const data::MicroOptions& micro, const at::Device& device, comm::Communicator* group,
                    const std::function<bool()>& interrupted) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(dataset.size());
  for (std::size_t i = 0; i < dataset.size(); ++i) lengths.push_back(dataset.length(i));
  const data::Groups groups = data::group_examples(lengths, micro);
  const std::size_t size = group != nullptr ? static_cast<std::size_t>(group->size()) : 1;
  const std::size_t rank = group != nullptr ? static_cast<std::size_t>(group->rank()) : 0;
  // Where weights are gathered on the way every rank has to make as many passes.
  const bool lockstep = model.store().is_split();
  // Summed as double: the sum of a large set must not lose the small terms. It stays on the device, which
  // needn't wait for the host between batches.
  at::Tensor sums = at::zeros({3}, at::TensorOptions().dtype(at::kDouble).device(device));
  double label_tokens = 0;
  bool ends = false;
  for (std::size_t first = 0; first < groups.size(); first += size) {
    ends = ends || (interrupted && interrupted());
    const bool idle = ends || first + rank >= groups.size();
    if (idle && !lockstep) break;
    const nn::Batch batch = to_device(
        idle ? data::filler_batch() : data::make_micro_batch(dataset, groups[first + rank]), device);
    if (batch.label_count == 0 && !lockstep) continue;
    sums[0].add_(model.token_nll({.batch = batch}).sum(at::kDouble));
    label_tokens += static_cast<double>(batch.label_count);
  }
  sums[1].fill_(label_tokens);
  sums[2].fill_(ends ? 1.0 : 0.0);
  at::Tensor host;
  if (group != nullptr) group->all_reduce(sums).wait();
  comm::while_waiting(group, [&] { host = sums.cpu(); });
  const auto* all = host.const_data_ptr<double>();
  return {.nll_sum = all[0], .label_tokens = static_cast<std::int64_t>(all[1]), .interrupted = all[2] > 0};
}

}  // namespace lorikeet::train
