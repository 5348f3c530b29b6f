#include "ops/frozen_weight.h"

#include <utility>

#include "ops/check.h"

namespace lorikeet::ops {

WeightLease::WeightLease(at::Tensor tensor, std::function<void()> release)
    : tensor_(std::move(tensor)), release_(std::move(release)) {}

WeightLease::~WeightLease() { end(); }

WeightLease::WeightLease(WeightLease&& other) noexcept
    : tensor_(std::move(other.tensor_)), release_(std::exchange(other.release_, nullptr)) {}

WeightLease& WeightLease::operator=(WeightLease&& other) noexcept {
  if (this != &other) {
    end();
    tensor_ = std::move(other.tensor_);
    release_ = std::exchange(other.release_, nullptr);
  }
  return *this;
}

void WeightLease::end() noexcept {
  tensor_.reset();
  if (release_) std::exchange(release_, nullptr)();
}

FrozenWeight::~FrozenWeight() = default;

ResidentWeight::ResidentWeight(const at::Tensor& weight) {
  check_tensor(weight.defined() && weight.dim() == 2, "frozen weight", "a matrix [out features, in features]",
               weight);
  weight_ = weight.detach().contiguous();
}

WeightLease ResidentWeight::lease() const { return WeightLease(weight_); }
std::int64_t ResidentWeight::rows() const { return weight_.size(0); }
std::int64_t ResidentWeight::cols() const { return weight_.size(1); }

}  // namespace lorikeet::ops
