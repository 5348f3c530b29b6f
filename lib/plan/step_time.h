#pragma once

#include <cstdint>
#include <vector>

#include "nn/model_shape.h"

namespace lorikeet::plan {

/// What a rank can send to the next and receive at the same time.
struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;  ///< of one message
};

/// One use of a unit of frozen weights in a micro-batch.
struct UnitUse {
  double gathered_bytes = 0;  ///< of the whole unit; 0 where it is still there
  double compute_share = 0;   ///< of the micro-batch's operations; 1 over all uses
};

/// Bytes of a stored number, its part of scales included.
struct StoredBytes {
  double table = 0;   ///< of embedding and head
  double linear = 0;  ///< of the layers' linear modules
};

/// The unit of layers' inputs (nn::LayerInputs): its bytes, 0 where there is none, and whether backward reads
/// it too. Its operations count as the layers'.
struct InputsUnit {
  double bytes = 0;
  std::int64_t linear_parameters = 0;  ///< of its projection, which the shape counts among the layers'
  bool learns = false;
};

/// The uses of a training micro-batch in parallel::WeightGatherer's order: embedding, layers' inputs, layers,
/// head, layers backwards, and their inputs once more where they learn. `head_share` is the head's part of
/// the operations.
std::vector<UnitUse> unit_uses(const nn::ModelShape& shape, const StoredBytes& stored, double head_share,
                               const InputsUnit& inputs = {});

struct StepTimeInput {
  double flops = 0;         ///< of the whole step, over all ranks (train::step_flops)
  double device_flops = 0;  ///< operations a second that one device sustains in this job
  int world_size = 1;
  int degree = 1;                 ///< ranks that share one copy of the weights; 1: replicate
  double turns = 1;               ///< micro-batches a rank, on average
  double busiest_share = 0;       ///< of the work, what the rank with most of it does; 0: all the same
  double turn_seconds = 0;        ///< that a micro-batch takes beside its operations
  double least_turn_seconds = 0;  ///< of a micro-batch, however small: what reading the weights takes
  double gradient_bytes = 0;      ///< of the adapter, in the reduce dtype
  std::vector<UnitUse> uses;      ///< for a degree above 1
  Link reduce_link;               ///< the slowest on a ring over all ranks
  Link gather_link;               ///< the slowest on a ring over those that share a copy
  /// Of the device's own time, for each byte that it sends or receives: a CPU copies them itself. 0 for GPUs.
  double seconds_per_byte = 0;
  // What goes between the device and the host's memory in a micro-batch, of the busiest rank.
  double moved_bytes = 0;            ///< of activations: out beside forward, back beside backward
  double streamed_bytes = 0;         ///< of weights: in, half of it beside forward
  double forward_share = 0.5;        ///< of a micro-batch's operations
  double host_bytes_per_second = 0;  ///< each way, both at a time; 0: as fast as need be
};

/// Seconds of a step by what the device waits for.
struct StepTime {
  double compute = 0;  ///< with the bytes that it copies itself
  double gather = 0;   ///< for weights that were not there in time
  double reduce = 0;   ///< for the gradients' sum
  double offload =
      0;  ///< for what went to the host's memory, or came from there, more slowly than it computed

  double waited() const { return gather + reduce + offload; }
  double total() const { return compute + waited(); }
};

/// The time of an optimizer step.
///
/// Ring algorithms: an all-gather over d ranks lets each send (d-1)/d of the result in d-1 messages, an
/// all-reduce over N ranks 2 (N-1)/N in 2 (N-1). While a unit computes the next is gathered, or, where that
/// is still there, the one behind it, so that its use takes the longer of both. Gradients are summed in
/// buckets of 8 MiB: full ones travel beside the last micro-batch's backward, half of its time; what is over,
/// and the last one, is waited for.
StepTime step_time(const StepTimeInput& input);

}  // namespace lorikeet::plan
