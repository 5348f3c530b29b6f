#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace lorikeet::ops {

/// The right to use a frozen weight for a short while. Ends with the object: a weight that was gathered,
/// uploaded or dequantised for it may then be let go. Never keep one, or its tensor, in an autograd node.
class WeightLease {
 public:
  /// `release` (may be empty) is called once, when the lease ends. It must not throw.
  explicit WeightLease(at::Tensor tensor, std::function<void()> release = {});
  ~WeightLease();
  WeightLease(WeightLease&& other) noexcept;
  WeightLease& operator=(WeightLease&& other) noexcept;
  WeightLease(const WeightLease&) = delete;
  WeightLease& operator=(const WeightLease&) = delete;

  /// The weight, [rows, cols], dense and row-major, valid while the lease lives.
  const at::Tensor& tensor() const { return tensor_; }

 private:
  void end() noexcept;

  at::Tensor tensor_;
  std::function<void()> release_;
};

/// A weight matrix [rows, cols] = [out features, in features] that takes no gradient. Forward and backward of
/// an operator each borrow it, so that it may live in shards, on another device or in another format in
/// between.
class FrozenWeight {
 public:
  virtual ~FrozenWeight();
  virtual WeightLease lease() const = 0;
  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
};

/// A weight that simply stays where it is.
class ResidentWeight : public FrozenWeight {
 public:
  /// Throws Error unless `weight` has two dimensions. Made contiguous; detached from autograd.
  explicit ResidentWeight(const at::Tensor& weight);

  WeightLease lease() const override;
  std::int64_t rows() const override;
  std::int64_t cols() const override;

 private:
  at::Tensor weight_;
};

}  // namespace lorikeet::ops
