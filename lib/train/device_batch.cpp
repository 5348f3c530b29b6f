#include "train/device_batch.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace lorikeet::train {
namespace {

template <typename T>
at::Tensor upload(const std::vector<T>& values, const at::Device& device) {
  const at::Tensor host = at::tensor(values);
  // Copies from pinned memory don't hold the host up.
  return device.is_cuda() ? host.pin_memory().to(device, /*non_blocking=*/true) : host;
}

}  // namespace

nn::Batch to_device(const data::MicroBatch& micro, const at::Device& device) {
  std::vector<std::int64_t> samples, labels;
  for (std::size_t s = 0; s < micro.sample_ids.size(); ++s) {
    const auto length = static_cast<std::size_t>(micro.cu_seqlens[s + 1] - micro.cu_seqlens[s]);
    samples.insert(samples.end(), length, micro.sample_ids[s]);
  }
  for (const std::int64_t row : micro.label_rows)
    labels.push_back(micro.labels[static_cast<std::size_t>(row)]);

  nn::Batch batch;
  batch.tokens = upload(micro.tokens, device);
  batch.position_ids = upload(micro.position_ids, device);
  batch.sample_ids = upload(samples, device);
  batch.sequences = {micro.cu_seqlens, upload(micro.cu_seqlens, device), micro.max_seqlen};
  batch.label_rows = upload(micro.label_rows, device);
  batch.labels = upload(labels, device);
  batch.label_count = micro.label_count();
  batch.positions = micro.max_seqlen;
  batch.real_tokens = micro.real_tokens;
  return batch;
}

}  // namespace lorikeet::train
