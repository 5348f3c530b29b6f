#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace lorikeet::ops {

/// What operators take tensors without data (device meta) to be on.
struct DryTarget {
  at::DeviceType device = at::kCPU;  ///< needn't be there
  bool native_products = true;       ///< of 16-bit matrices: see multiplies_natively; a GPU's always are
  std::int64_t threads = 1;          ///< of a CPU's operators
  int capability = 80;               ///< a GPU's compute capability, 10 * major + minor
};

/// Bytes of a dry run's tensors at one moment.
struct DryMoment {
  static constexpr std::size_t kParts = 8;
  std::array<std::int64_t, kParts> parts{};  ///< of tensors, by the parts that DryRun's user gives them
  std::int64_t unused = 0;                   ///< held by the allocator beside them

  std::int64_t total() const;
};

/// While one lives, this thread's operators treat meta tensors as tensors on its target: they choose that
/// device's kernels, make the same tensors in the same order, and compute nothing. The memory of every meta
/// tensor made meanwhile, an operator's scratch included, is followed by the target's allocator: on a CPU
/// BlockPool's rules, on a GPU multiples of 512 bytes, without what its caching allocator holds beside them.
/// Tensors may outlive it. One at a time in a thread.
class DryRun {
 public:
  explicit DryRun(const DryTarget& target);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  /// Tensors that are alive and have no part yet, for good.
  void assign(std::size_t part);
  /// From now on those that have none yet count as `part`: 0 at first.
  void count_others_as(std::size_t part);

  const DryMoment& now() const;
  /// The moment when tensors took most.
  const DryMoment& peak() const;
  /// The most that tensors and free blocks took together, at that moment or another.
  std::int64_t most_held() const;
  /// Of DryHostMemory, on a GPU: the most that was held.
  std::int64_t host_peak() const;
  /// And the bytes of all that was made, as they are copied.
  std::int64_t host_bytes() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

/// While one lives, the meta tensors that this thread makes stand for memory of the host (host_memory): a dry
/// run for a GPU counts them apart, one for a CPU as any others.
class DryHostMemory {
 public:
  DryHostMemory();
  ~DryHostMemory();
  DryHostMemory(const DryHostMemory&) = delete;
  DryHostMemory& operator=(const DryHostMemory&) = delete;
};

/// The device whose kernels operators choose for `tensor`: its own, or for a meta tensor the dry run's. Meta
/// itself, for which references serve, where there is no dry run.
at::DeviceType kernels_of(const at::Tensor& tensor);

/// The target of this thread's dry run; nullptr without one.
const DryTarget* dry_target();

}  // namespace lorikeet::ops
