#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/row_order.h"
#include "precision/policy.h"

namespace lorikeet::peft {

/// One tensor of an adapter: its place in the flat buffers.
struct AdapterSegment {
  std::string name;  ///< "model.layers.0.self_attn.q_proj.lora_A.weight"
  std::vector<std::int64_t> shape;
  /// The store holds rows in group order; files have them in module order. Identity for A, whose rows are the
  /// rank's.
  nn::RowOrder order = {};
  /// Has values, but no gradient, and no place in what the optimizer and the wire see.
  bool frozen = false;
  std::int64_t offset = 0;  ///< in elements, of the buffer of all values

  std::int64_t size() const;
};

/// All trainable state of a run as flat buffers with one segment table: values, gradients, and a copy of the
/// values in the compute dtype that forward and backward read. The optimizer's moments have the gradients'
/// layout. Frozen segments lie behind all others.
///
/// Segments are declared in groups in the order of forward; `allocate` lays groups out in reverse, which is
/// the order in which backward completes them, so that a finished prefix can be reduced while backward goes
/// on.
class AdapterStore {
 public:
  explicit AdapterStore(const precision::Policy& policy) : policy_(policy) {}
  AdapterStore(const AdapterStore&) = delete;
  AdapterStore& operator=(const AdapterStore&) = delete;

  /// Declares the tensors of one group (contiguous, in the given order); returns the index of the first.
  std::size_t declare(std::vector<AdapterSegment> group);

  /// Allocates all buffers on `device`: values and gradients zero.
  void allocate(const at::Device& device);

  std::size_t size() const { return segments_.size(); }
  const AdapterSegment& segment(std::size_t i) const { return segments_.at(i); }
  /// Elements of all trainable tensors declared so far.
  std::int64_t numel() const { return numel_; }
  const precision::Policy& policy() const { return policy_; }

  /// Flat [numel]: what the optimizer reads and writes.
  const at::Tensor& values() const { return values_; }
  const at::Tensor& gradients() const { return gradients_; }
  /// The values with those of frozen segments behind them, flat.
  const at::Tensor& all_values() const { return all_values_; }

  /// Views of one segment, in its shape. `compute` is what operators read; a frozen one's gradient is
  /// undefined.
  const at::Tensor& value(std::size_t i) const { return views_.at(i).value; }
  const at::Tensor& gradient(std::size_t i) const { return views_.at(i).gradient; }
  const at::Tensor& compute(std::size_t i) const { return views_.at(i).compute; }

  /// Copies the values into their compute-dtype twin; to be called after every change of the values.
  void refresh_compute();
  /// That twin, flat [numel]; the values themselves where the dtypes agree. Who changes both the values and
  /// it calls compute_was_refreshed() instead.
  at::Tensor compute_values() const { return compute_.narrow(0, 0, numel_); }
  void compute_was_refreshed() { ++version_; }
  /// The number of refreshes so far: what was computed from values is of no use after another.
  std::uint64_t version() const { return version_; }

 private:
  // Made once: a pass asks for all of them, twice.
  struct Views {
    at::Tensor value, gradient, compute;
  };

  precision::Policy policy_;
  std::vector<AdapterSegment> segments_;
  std::vector<std::size_t> group_begins_;
  std::int64_t numel_ = 0, frozen_numel_ = 0;
  std::uint64_t version_ = 0;
  at::Tensor all_values_, values_, gradients_, compute_;
  std::vector<Views> views_;
};

}  // namespace lorikeet::peft
