#include "nn/weights.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "ops/dtype.h"

namespace lorikeet::nn {
namespace {

// Coarse enough for any vector load, for collectives and for cutting a unit into shards.
constexpr std::int64_t kAlignmentBytes = 512;

std::int64_t numel(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

}  // namespace

std::size_t WeightUnit::declare(std::vector<WeightSegment> tensors) {
  TORCH_CHECK(!buffer_.defined(), "unit ", name_, " is allocated already");
  const std::size_t first = segments_.size();
  size_bytes_ = (size_bytes_ + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  for (WeightSegment& segment : tensors) {
    segment.offset_bytes = size_bytes_;
    size_bytes_ += numel(segment.shape) * static_cast<std::int64_t>(dtype_size(segment.dtype));
    segments_.push_back(std::move(segment));
  }
  return first;
}

void WeightUnit::allocate(const at::Device& device) {
  buffer_ = at::empty({size_bytes_}, at::TensorOptions().dtype(at::kByte).device(device));
}

at::Tensor WeightUnit::view(std::size_t segment, at::IntArrayRef shape) const {
  const WeightSegment& s = segments_.at(segment);
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  const auto bytes = n * static_cast<std::int64_t>(dtype_size(s.dtype));
  return buffer_.narrow(0, s.offset_bytes, bytes).view(ops::to_torch(s.dtype)).view(shape);
}

at::Tensor WeightUnit::tensor(std::size_t segment) const {
  return view(segment, segments_.at(segment).shape);
}

at::Tensor WeightUnit::matrix(std::size_t first, std::int64_t rows, std::int64_t cols) const {
  return view(first, {rows, cols});
}

WeightUnit& WeightStore::add_unit(std::string name) {
  units_.push_back(std::make_unique<WeightUnit>(std::move(name)));
  return *units_.back();
}

void WeightStore::allocate(const at::Device& device) {
  for (const auto& unit : units_) unit->allocate(device);
}

std::int64_t WeightStore::bytes() const {
  std::int64_t total = 0;
  for (const auto& unit : units_) total += unit->bytes();
  return total;
}

ops::WeightLease UnitWeight::lease() const {
  return ops::WeightLease(unit_.matrix(first_, rows_, cols_).to(ops::to_torch(compute_)));
}

}  // namespace lorikeet::nn
