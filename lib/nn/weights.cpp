#include "nn/weights.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "nn/alignment.h"
#include "nn/host_layout.h"
#include "ops/dtype.h"
#include "ops/host_transfers.h"

namespace lorikeet::nn {
namespace {

std::int64_t numel(at::IntArrayRef shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

at::Tensor allocate_bytes(std::int64_t bytes, const at::Device& device) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
}

}  // namespace

std::int64_t WeightSegment::bytes() const {
  if (quantized != nullptr) return quantized->bytes(shape.at(0), shape.at(1));
  return numel(shape) * static_cast<std::int64_t>(dtype_size(dtype));
}

std::size_t WeightUnit::declare(std::vector<WeightSegment> tensors) {
  TORCH_CHECK(!vectors_.defined(), "unit ", name_, " is allocated already");
  const std::size_t first = segments_.size();
  const bool matrices = tensors.at(0).is_matrix();
  std::int64_t& size = matrices ? matrix_bytes_ : vector_bytes_;
  size = aligned(size);
  for (WeightSegment& segment : tensors) {
    TORCH_CHECK(segment.is_matrix() == matrices, "matrices and vectors declared as one");
    segment.offset_bytes = size;
    size += segment.bytes();
  }
  for (WeightSegment& segment : tensors) segments_.push_back(std::move(segment));
  return first;
}

std::int64_t WeightUnit::part_bytes(int size) const {
  return size == 1 ? matrix_bytes_ : aligned((matrix_bytes_ + size - 1) / size);
}

void WeightUnit::allocate(const at::Device& device, const WeightShard& shard, const at::Tensor& matrices) {
  shard_ = shard;
  matrices_ = matrices.defined() ? matrices : allocate_bytes(part_bytes(shard.size), device);
  vectors_ = allocate_bytes(vector_bytes_, device);
  vector_views_.assign(segments_.size(), {});
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    if (!segments_[i].is_matrix()) vector_views_[i] = view(i, segments_[i].shape);
  }
}

at::Tensor WeightUnit::view(std::size_t segment, at::IntArrayRef shape) const {
  const WeightSegment& s = segments_.at(segment);
  TORCH_CHECK(!s.is_matrix() || shard_.size == 1, "unit ", name_, " is split: borrow it");
  TORCH_CHECK(s.quantized == nullptr, s.name, " is quantised: take it as a matrix");
  const auto bytes = numel(shape) * static_cast<std::int64_t>(dtype_size(s.dtype));
  const at::Tensor& buffer = s.is_matrix() ? matrices_ : vectors_;
  return buffer.narrow(0, s.offset_bytes, bytes).view(ops::to_torch(s.dtype)).view(shape);
}

at::Tensor WeightUnit::tensor(std::size_t segment) const {
  const WeightSegment& s = segments_.at(segment);
  return s.is_matrix() ? view(segment, s.shape) : vector_views_.at(segment);
}

at::Tensor WeightUnit::vector(std::size_t first, std::int64_t size) const { return view(first, {size}); }

ops::FrozenMatrix UnitLoan::matrix(std::size_t first, std::int64_t rows, std::int64_t cols) const {
  const WeightSegment& s = unit->segments().at(first);
  if (s.quantized != nullptr) {
    auto parts = unit->parts(first, rows);
    const std::int64_t bytes = parts.back().offset_bytes + s.quantized->bytes(parts.back().rows, cols);
    return {s.quantized, matrices.narrow(0, s.offset_bytes, bytes), rows, cols,
            std::make_shared<const std::vector<ops::MatrixPart>>(std::move(parts))};
  }
  const ops::WeightFormat& format = ops::dense_format(s.dtype);
  return {&format, matrices.narrow(0, s.offset_bytes, format.bytes(rows, cols)), rows, cols, nullptr};
}

std::vector<ops::MatrixPart> WeightUnit::parts(std::size_t first, std::int64_t rows) const {
  std::vector<ops::MatrixPart> parts;
  const std::int64_t begin = segments_.at(first).offset_bytes;
  for (std::int64_t row = 0; row < rows; ++first) {
    const WeightSegment& segment = segments_.at(first);
    ops::MatrixPart part{.offset_bytes = segment.offset_bytes - begin, .rows = segment.shape.front()};
    for (const RowRun& run : row_runs(segment.order, part.rows))
      part.runs.push_back({run.module_row, row + run.group_row, run.count});
    row += part.rows;
    parts.push_back(std::move(part));
  }
  return parts;
}

WeightUnit::Held WeightUnit::held(std::size_t segment) const {
  const WeightSegment& s = segments_.at(segment);
  const auto element = static_cast<std::int64_t>(dtype_size(s.dtype));
  const std::int64_t begin = s.offset_bytes, end = begin + s.bytes();
  if (!s.is_matrix()) return {vectors_.slice(0, begin, end).view(ops::to_torch(s.dtype)), 0};
  // Cuts lie at multiples of 512 bytes and segments at multiples of their element's size.
  const std::int64_t cut = shard_.rank * matrices_.numel();
  const std::int64_t from = std::max(begin, cut), to = std::min(end, cut + matrices_.numel());
  if (from >= to) return {};
  return {matrices_.slice(0, from - cut, to - cut).view(ops::to_torch(s.dtype)), (from - begin) / element};
}

namespace {

std::vector<std::int64_t> part_bytes(const std::vector<std::unique_ptr<WeightUnit>>& units, int size) {
  std::vector<std::int64_t> bytes;
  bytes.reserve(units.size());
  for (const auto& unit : units) bytes.push_back(unit->part_bytes(size));
  return bytes;
}

}  // namespace

WeightUnit& WeightStore::add_unit(std::string name) {
  units_.push_back(std::make_unique<WeightUnit>(std::move(name)));
  return *units_.back();
}

void WeightStore::allocate(const at::Device& device, const WeightShard& shard, bool on_host) {
  shard_ = shard;
  on_host_ = on_host;
  if (!on_host) {
    for (const auto& unit : units_) unit->allocate(device, shard);
    return;
  }
  const HostLayout layout = host_layout(part_bytes(units_, shard.size));
  std::vector<at::Tensor> blocks;
  blocks.reserve(layout.block_bytes.size());
  for (const std::int64_t bytes : layout.block_bytes) blocks.push_back(ops::host_memory(bytes, device));
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const auto& [block, offset] = layout.places[i];
    units_[i]->allocate(device, shard, blocks[block].narrow(0, offset, units_[i]->part_bytes(shard.size)));
  }
}

void WeightStore::expect(const std::vector<const WeightUnit*>& order) const {
  if (lender_ != nullptr) lender_->expect(order);
}

UnitLoan WeightStore::borrow(const WeightUnit& unit) const {
  if (lender_ != nullptr && unit.matrix_bytes() > 0) return lender_->borrow(unit);
  TORCH_CHECK((shard_.size == 1 && !on_host_) || unit.matrix_bytes() == 0, "unit ", unit.name(),
              " is split, or in the host's memory, and nobody lends it");
  return {&unit, unit.part()};
}

std::int64_t WeightStore::bytes() const { return held_bytes(1); }

std::int64_t WeightStore::held_bytes(int size) const {
  std::int64_t total = 0;
  for (const auto& unit : units_) total += unit->bytes() - unit->matrix_bytes() + unit->part_bytes(size);
  return total;
}

std::int64_t WeightStore::host_bytes(at::DeviceType device) const {
  std::int64_t total = 0;
  for (const std::int64_t block : host_layout(part_bytes(units_, 1)).block_bytes)
    total += ops::host_memory_bytes(block, device);
  return total;
}

std::int64_t WeightStore::vector_bytes() const {
  std::int64_t total = 0;
  for (const auto& unit : units_) total += unit->bytes() - unit->matrix_bytes();
  return total;
}

}  // namespace lorikeet::nn
