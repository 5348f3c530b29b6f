#include "peft/adapter_store.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "ops/dtype.h"

namespace lorikeet::peft {

std::int64_t AdapterSegment::size() const {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

std::size_t AdapterStore::declare(std::vector<AdapterSegment> group) {
  TORCH_CHECK(!all_values_.defined(), "adapters are allocated already");
  const std::size_t first = segments_.size();
  group_begins_.push_back(first);
  for (AdapterSegment& segment : group) {
    (segment.frozen ? frozen_numel_ : numel_) += segment.size();
    segments_.push_back(std::move(segment));
  }
  return first;
}

void AdapterStore::allocate(const at::Device& device) {
  std::size_t end = segments_.size();
  std::int64_t offset = 0, frozen_offset = numel_;
  for (auto begin = group_begins_.rbegin(); begin != group_begins_.rend(); ++begin) {
    for (std::size_t i = *begin; i < end; ++i) {
      std::int64_t& next = segments_[i].frozen ? frozen_offset : offset;
      segments_[i].offset = next;
      next += segments_[i].size();
    }
    end = *begin;
  }
  const auto options = at::TensorOptions().device(device);
  const std::int64_t all = numel_ + frozen_numel_;
  all_values_ = at::zeros({all}, options.dtype(ops::to_torch(policy_.adapter)));
  values_ = all_values_.narrow(0, 0, numel_);
  gradients_ = at::zeros({numel_}, options.dtype(ops::to_torch(policy_.gradient)));
  compute_ = policy_.compute == policy_.adapter
                 ? all_values_
                 : at::zeros({all}, options.dtype(ops::to_torch(policy_.compute)));
  views_.clear();
  for (const AdapterSegment& s : segments_) {
    const auto view = [&](const at::Tensor& flat) {
      return flat.narrow(0, s.offset, s.size()).view(s.shape);
    };
    views_.push_back({view(all_values_), s.frozen ? at::Tensor() : view(gradients_), view(compute_)});
  }
}

void AdapterStore::refresh_compute() {
  const at::NoGradGuard no_grad;
  if (!compute_.is_same(all_values_)) compute_.copy_(all_values_);
  compute_was_refreshed();
}

}  // namespace lorikeet::peft
