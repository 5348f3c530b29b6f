#include "plan/memory.h"

#include <algorithm>

#include "ops/cpu_allocator.h"
#include "ops/matmul/product_cache.h"
#include "plan/step_tensors.h"
#include "plan/tape.h"

namespace lorikeet::plan {
namespace {

using Bytes = std::int64_t;

// Buffers of the math library's threads and code that a first step touches: measured on steps too small for
// anything else to count.
constexpr Bytes kRuntimeCpu = Bytes{32} << 20;
// What is kept of 16-bit products, once rows of enough lengths have come by.
constexpr Bytes kProductCaches = ops::kProductCacheRules.products * ops::kProductCacheRules.bytes_of_product;
// cuBLAS's workspaces, by libtorch's default for Hopper; others take less.
constexpr Bytes kRuntimeCuda = Bytes{64} << 20;
// On a GPU blocks are cut out of larger ones, and remainders stay unused: assumed, not measured.
constexpr double kFragmentationCuda = 1.0 / 16;

Bytes product_cache_bytes(const MemoryInput& in) {
  const bool native_16_bit = in.kernels == Kernels::kCpu && dtype_size(in.policy.compute) == 2;
  return native_16_bit ? kProductCaches : 0;
}

Bytes size_of(DType dtype) { return static_cast<Bytes>(dtype_size(dtype)); }

// Of values, gradients and the copy that computes, which exists only where it differs.
Bytes adapter_bytes(const MemoryInput& in) {
  const precision::Policy& policy = in.policy;
  const Bytes copy = policy.compute == policy.adapter ? 0 : size_of(policy.compute);
  return in.adapter_parameters * (size_of(policy.adapter) + size_of(policy.gradient) + copy);
}

}  // namespace

std::vector<std::pair<std::string, std::int64_t>> MemoryEstimate::rows() const {
  return {{"weights", weights},
          {"adapter", adapter},
          {"optimizer", optimizer},
          {"activations", activations},
          {"logits", logits},
          {"workspace", workspace},
          {"fragmentation", fragmentation},
          {"product_caches", product_caches},
          {"runtime", runtime}};
}

MemoryEstimate step_memory(const MemoryInput& in) {
  const bool cuda = in.kernels == Kernels::kCuda;
  Tape tape(cuda ? Tape::Allocator::kExactly : Tape::Allocator::kCpu);
  const auto weights = tape.take(Part::kWeights, in.frozen_bytes);
  const auto adapter = tape.take(Part::kAdapter, adapter_bytes(in));
  const auto optimizer =
      tape.take(Part::kOptimizer, 2 * in.adapter_parameters * size_of(in.policy.optimizer_state));
  // The second step finds the free blocks that the first one left.
  const Bytes per_layer = run_step(in, tape);
  if (!cuda) run_step(in, tape);

  const MemoryMoment& peak = tape.peak();
  MemoryEstimate out{.weights = peak.of(Part::kWeights),
                     .adapter = peak.of(Part::kAdapter),
                     .optimizer = peak.of(Part::kOptimizer),
                     .activations = peak.of(Part::kActivations),
                     .logits = peak.of(Part::kLogits),
                     .workspace = peak.of(Part::kWorkspace),
                     .fragmentation = peak.kept,
                     .product_caches = product_cache_bytes(in),
                     .runtime = cuda ? kRuntimeCuda : kRuntimeCpu,
                     .activations_per_layer = per_layer};
  if (cuda) {
    const auto moving = static_cast<double>(out.activations + out.logits + out.workspace);
    out.fragmentation = static_cast<Bytes>(kFragmentationCuda * moving);
  } else if (peak.kept > 0) {
    // Steps whose rows have other lengths leave free blocks of other sizes: in time as many as are kept at
    // all.
    out.fragmentation = std::max(peak.kept, ops::kCpuAllocatorRules.most_kept(peak.total() - peak.kept));
  }
  return out;
}

}  // namespace lorikeet::plan
