#include "train/device_batch.h"

#include <ATen/ATen.h>

#include <cstring>
#include <utility>

namespace lorikeet::train {
namespace {

// Arrays begin at multiples of 16 bytes, the widest access of a kernel.
constexpr std::int64_t kAlignmentBytes = 16;

/// Copies arrays into one buffer on the host, and gives them back as parts of its copy on a device.
class SharedBuffer {
 public:
  /// Where an added array lies. The array has to live until `upload`.
  struct Place {
    std::int64_t offset_bytes = 0, length = 0;
  };

  template <typename T>
  Place add(const std::vector<T>& values) {
    const Place place{bytes_, std::ssize(values)};
    const auto size = static_cast<std::int64_t>(values.size() * sizeof(T));
    sources_.push_back({.data = values.data(), .bytes = size, .offset = bytes_});
    bytes_ += (size + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    return place;
  }

  void upload(const at::Device& device) {
    // The allocator of pinned memory keeps the block until the copy is done.
    const at::Tensor host =
        at::empty({bytes_}, at::TensorOptions().dtype(at::kByte).pinned_memory(device.is_cuda()));
    auto* to = host.mutable_data_ptr<std::uint8_t>();
    for (const Source& source : sources_) {
      if (source.bytes > 0)
        std::memcpy(to + source.offset, source.data, static_cast<std::size_t>(source.bytes));
    }
    on_device_ = host.to(device, /*non_blocking=*/device.is_cuda());
  }

  at::Tensor at(const Place& place, at::ScalarType dtype) const {
    const auto size = place.length * static_cast<std::int64_t>(c10::elementSize(dtype));
    return on_device_.slice(0, place.offset_bytes, place.offset_bytes + size).view(dtype);
  }

 private:
  struct Source {
    const void* data = nullptr;
    std::int64_t bytes = 0, offset = 0;
  };
  std::vector<Source> sources_;
  std::int64_t bytes_ = 0;
  at::Tensor on_device_;
};

/// The arrays that a micro-batch doesn't hold as a batch wants them.
struct RowArrays {
  std::vector<std::int64_t> sample_ids;  // of each token
  std::vector<std::int64_t> labels;      // of the label rows alone
};

RowArrays row_arrays(const data::MicroBatch& micro) {
  RowArrays rows;
  rows.sample_ids.reserve(micro.tokens.size());
  for (std::size_t s = 0; s < micro.sample_ids.size(); ++s) {
    const auto length = static_cast<std::size_t>(micro.cu_seqlens[s + 1] - micro.cu_seqlens[s]);
    rows.sample_ids.insert(rows.sample_ids.end(), length, micro.sample_ids[s]);
  }
  rows.labels.reserve(micro.label_rows.size());
  for (const std::int64_t row : micro.label_rows) {
    rows.labels.push_back(micro.labels[static_cast<std::size_t>(row)]);
  }
  return rows;
}

struct Places {
  SharedBuffer::Place tokens, position_ids, sample_ids, cu_seqlens, label_rows, labels;
};

}  // namespace

std::vector<nn::Batch> to_device(std::span<const data::MicroBatch> micro_batches, const at::Device& device) {
  std::vector<RowArrays> rows;
  rows.reserve(micro_batches.size());
  std::vector<Places> places;
  SharedBuffer buffer;
  for (const data::MicroBatch& micro : micro_batches) {
    rows.push_back(row_arrays(micro));
    places.push_back({.tokens = buffer.add(micro.tokens),
                      .position_ids = buffer.add(micro.position_ids),
                      .sample_ids = buffer.add(rows.back().sample_ids),
                      .cu_seqlens = buffer.add(micro.cu_seqlens),
                      .label_rows = buffer.add(micro.label_rows),
                      .labels = buffer.add(rows.back().labels)});
  }
  buffer.upload(device);

  std::vector<nn::Batch> batches;
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    const data::MicroBatch& micro = micro_batches[i];
    const Places& at = places[i];
    nn::Batch& batch = batches.emplace_back();
    batch.tokens = buffer.at(at.tokens, at::kLong);
    batch.position_ids = buffer.at(at.position_ids, at::kLong);
    batch.sample_ids = buffer.at(at.sample_ids, at::kLong);
    batch.sequences = {micro.cu_seqlens, buffer.at(at.cu_seqlens, at::kInt), micro.max_seqlen};
    batch.label_rows = buffer.at(at.label_rows, at::kLong);
    batch.labels = buffer.at(at.labels, at::kLong);
    batch.label_count = micro.label_count();
    batch.positions = micro.max_seqlen;
    batch.real_tokens = micro.real_tokens;
  }
  return batches;
}

nn::Batch to_device(const data::MicroBatch& micro_batch, const at::Device& device) {
  return std::move(to_device(std::span(&micro_batch, 1), device).front());
}

}  // namespace lorikeet::train
