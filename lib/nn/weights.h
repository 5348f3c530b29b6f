#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "ops/frozen_weight.h"

namespace lorikeet::nn {

/// A frozen tensor of the checkpoint: where it lies in its unit's buffer.
struct WeightSegment {
  std::string name;                 ///< the checkpoint's name, "model.layers.0.mlp.up_proj.weight"
  std::vector<std::int64_t> shape;  ///< as in the checkpoint
  DType dtype;                      ///< as stored here
  std::int64_t offset_bytes = 0;    ///< in the unit's buffer
};

/// The frozen tensors that are needed at the same time (one decoder layer; the embedding; the head), as
/// segments of one contiguous buffer, so that a unit can be sharded, gathered or offloaded whole.
///
/// Life: `declare` every tensor, `allocate` once, then fill and use. Tensors declared in one call lie without
/// gaps after each other (rows of a concatenated weight); each call starts at a multiple of 512 bytes.
class WeightUnit {
 public:
  explicit WeightUnit(std::string name) : name_(std::move(name)) {}
  WeightUnit(const WeightUnit&) = delete;
  WeightUnit& operator=(const WeightUnit&) = delete;

  /// Returns the index of the first of the declared segments; the others follow.
  std::size_t declare(std::vector<WeightSegment> tensors);

  /// Allocates the buffer, uninitialised. Further declarations are an error.
  void allocate(const at::Device& device);

  const std::string& name() const { return name_; }
  const std::vector<WeightSegment>& segments() const { return segments_; }
  std::int64_t bytes() const { return size_bytes_; }

  /// View of a segment in the buffer, in its declared shape.
  at::Tensor tensor(std::size_t segment) const;
  /// View of `count` consecutive segments as one [rows, cols] matrix (their rows after each other).
  at::Tensor matrix(std::size_t first, std::int64_t rows, std::int64_t cols) const;

 private:
  at::Tensor view(std::size_t segment, at::IntArrayRef shape) const;

  std::string name_;
  std::vector<WeightSegment> segments_;
  std::int64_t size_bytes_ = 0;
  at::Tensor buffer_;  // uint8 [size_bytes]
};

/// All units of a model, in the order of use.
class WeightStore {
 public:
  /// A new unit, owned by the store.
  WeightUnit& add_unit(std::string name);
  void allocate(const at::Device& device);

  const std::vector<std::unique_ptr<WeightUnit>>& units() const { return units_; }
  std::int64_t bytes() const;

 private:
  std::vector<std::unique_ptr<WeightUnit>> units_;
};

/// The weight of a linear group as operators see it: lent out of a unit for as long as a lease lives, in the
/// compute dtype (converted for the lease where it is stored in another).
class UnitWeight : public ops::FrozenWeight {
 public:
  UnitWeight(const WeightUnit& unit, std::size_t first_segment, std::int64_t rows, std::int64_t cols,
             DType compute)
      : unit_(unit), first_(first_segment), rows_(rows), cols_(cols), compute_(compute) {}

  ops::WeightLease lease() const override;
  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }

 private:
  const WeightUnit& unit_;
  std::size_t first_;
  std::int64_t rows_;
  std::int64_t cols_;
  DType compute_;
};

}  // namespace lorikeet::nn
