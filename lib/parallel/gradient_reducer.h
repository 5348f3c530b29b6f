#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "comm/communicator.h"
#include "nn/causal_lm.h"
#include "peft/lora.h"

namespace lorikeet::parallel {

/// Sums the adapters' gradients over the ranks, once an optimizer step: the only thing that crosses the wire
/// when every rank holds the frozen base.
///
/// Gradients lie in one flat buffer in the order in which backward completes them, so what is done is a
/// prefix that grows. During the last micro-batch's backward it is reduced in buckets as it grows; `finish`
/// sends the rest and waits. The sum is taken in the policy's `reduce` dtype.
class GradientReducer {
 public:
  static constexpr std::int64_t kBucketBytes = std::int64_t{8} << 20;

  /// Throws Error when the adapters don't lie in backward's order.
  GradientReducer(comm::Communicator& group, peft::LoraAdapters& adapters, const nn::CausalLM& model,
                  std::int64_t bucket_bytes = kBucketBytes);
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// To be called in the backward of the step's last micro-batch, once the gradients of decoder layer `layer`
  /// and of all that is above it are complete (`layer` = the number of layers: the head's).
  void completed(std::int64_t layer);

  /// Reduces what is left; the buffer then holds the sums. Every rank calls it once a step, one that had no
  /// micro-batch too.
  void finish();

  comm::Communicator& group() { return group_; }

 private:
  struct Bucket {
    at::Tensor target;  // part of the flat buffer
    at::Tensor sent;    // in the reduce dtype; `target` itself where that is its own
    comm::Pending pending;
  };
  // Starts the next bucket. All ranks cut the buffer alike, whenever each gets there.
  void send(std::int64_t elements);

  comm::Communicator& group_;
  peft::AdapterStore& store_;
  std::vector<std::int64_t> ends_;  // [layer], the head last: elements that are complete with it
  std::int64_t bucket_elements_;
  std::int64_t sent_ = 0;
  std::vector<Bucket> buckets_;
};

}  // namespace lorikeet::parallel
