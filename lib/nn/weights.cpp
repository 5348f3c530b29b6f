#include "nn/weights.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "ops/dtype.h"

namespace lorikeet::nn {
namespace {

// Coarse enough for any vector load, for collectives and for cutting a unit into shards.
constexpr std::int64_t kAlignmentBytes = 512;

std::int64_t numel(at::IntArrayRef shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

at::Tensor allocate_bytes(std::int64_t bytes, const at::Device& device) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
}

}  // namespace

std::size_t WeightUnit::declare(std::vector<WeightSegment> tensors) {
  TORCH_CHECK(!vectors_.defined(), "unit ", name_, " is allocated already");
  const std::size_t first = segments_.size();
  const bool matrices = tensors.at(0).is_matrix();
  std::int64_t& size = matrices ? matrix_bytes_ : vector_bytes_;
  size = aligned(size);
  for (WeightSegment& segment : tensors) {
    TORCH_CHECK(segment.is_matrix() == matrices, "matrices and vectors declared as one");
    segment.offset_bytes = size;
    size += numel(segment.shape) * static_cast<std::int64_t>(dtype_size(segment.dtype));
    segments_.push_back(std::move(segment));
  }
  return first;
}

std::int64_t WeightUnit::part_bytes(int size) const {
  return size == 1 ? matrix_bytes_ : aligned((matrix_bytes_ + size - 1) / size);
}

void WeightUnit::allocate(const at::Device& device, const WeightShard& shard) {
  shard_ = shard;
  matrices_ = allocate_bytes(part_bytes(shard.size), device);
  vectors_ = allocate_bytes(vector_bytes_, device);
}

at::Tensor WeightUnit::buffer_of(const WeightSegment& segment) const {
  if (!segment.is_matrix()) return vectors_;
  if (shard_.size == 1) return matrices_;
  TORCH_CHECK(gatherer_ != nullptr, "unit ", name_, " is split and has nothing that gathers it");
  return gatherer_->gather(*this);
}

at::Tensor WeightUnit::view(std::size_t segment, at::IntArrayRef shape) const {
  const WeightSegment& s = segments_.at(segment);
  const auto bytes = numel(shape) * static_cast<std::int64_t>(dtype_size(s.dtype));
  return buffer_of(s).narrow(0, s.offset_bytes, bytes).view(ops::to_torch(s.dtype)).view(shape);
}

at::Tensor WeightUnit::tensor(std::size_t segment) const {
  return view(segment, segments_.at(segment).shape);
}

at::Tensor WeightUnit::matrix(std::size_t first, std::int64_t rows, std::int64_t cols) const {
  return view(first, {rows, cols});
}

WeightUnit::Held WeightUnit::held(std::size_t segment) const {
  const WeightSegment& s = segments_.at(segment);
  const auto element = static_cast<std::int64_t>(dtype_size(s.dtype));
  const std::int64_t begin = s.offset_bytes, end = begin + numel(s.shape) * element;
  if (!s.is_matrix()) return {vectors_.slice(0, begin, end).view(ops::to_torch(s.dtype)), 0};
  // Cuts lie at multiples of 512 bytes and segments at multiples of their element's size.
  const std::int64_t cut = shard_.rank * matrices_.numel();
  const std::int64_t from = std::max(begin, cut), to = std::min(end, cut + matrices_.numel());
  if (from >= to) return {};
  return {matrices_.slice(0, from - cut, to - cut).view(ops::to_torch(s.dtype)), (from - begin) / element};
}

WeightUnit& WeightStore::add_unit(std::string name) {
  units_.push_back(std::make_unique<WeightUnit>(std::move(name)));
  return *units_.back();
}

void WeightStore::allocate(const at::Device& device, const WeightShard& shard) {
  shard_ = shard;
  for (const auto& unit : units_) unit->allocate(device, shard);
}

void WeightStore::gather_by(UnitGatherer* gatherer) {
  for (const auto& unit : units_) unit->gather_by(gatherer);
}

std::int64_t WeightStore::bytes() const { return held_bytes(1); }

std::int64_t WeightStore::held_bytes(int size) const {
  std::int64_t total = 0;
  for (const auto& unit : units_) total += unit->bytes() - unit->matrix_bytes() + unit->part_bytes(size);
  return total;
}

ops::WeightLease UnitWeight::lease() const {
  return ops::WeightLease(unit_.matrix(first_, rows_, cols_).to(ops::to_torch(compute_)));
}

}  // namespace lorikeet::nn
