#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "nn/batch.h"
#include "nn/causal_lm.h"
#include "ops/device_graph.h"
#include "train/micro_step.h"

namespace lorikeet::train {

/// A run's micro-steps on a GPU, as CUDA graphs where their shapes repeat: same sequences, same number of
/// labels, same loss scale. The first of a shape runs as ever, which makes what is made once; the second is
/// recorded; from then on each is a launch of the graph behind copies of the batch's tensors.
///
/// A graph adds to the same gradients, and its numbers are those of run_micro_step. It reads adapters,
/// weights and tables where they were when it was recorded. Weights and activations must not be offloaded,
/// weights not be split over ranks; dropout must be off, since its masks are keyed by a number of the host;
/// so must DoRA, whose norms are made anew in a step's first micro-batch alone. Shapes in which the host
/// waits to learn how many rows each expert has (ops::routing_waits) run as ever.
///
/// The memory of a micro-step stays taken as long as its graph lives; graphs share it.
class GraphedMicroSteps {
 public:
  /// `model` has to outlive it.
  explicit GraphedMicroSteps(const nn::CausalLM& model) : model_(model) {}

  /// As run_micro_step, on a stream that isn't the device's default one. With a reducer, which learns of each
  /// layer, it runs as ever. The loss is valid until the next call. Where memory is too short for a recording
  /// it warns and goes on without graphs; where CUDA refuses something in one, so that the process can't go
  /// on, it throws Error (kRunFailed). It warns where no shape has come twice for long.
  at::Tensor run(const nn::Batch& batch, const MicroStepOptions& options);

  /// How many graphs there are, and of the micro-steps how many were launches of one.
  struct Use {
    std::int64_t graphs = 0, launched = 0, micro_steps = 0;
  };
  const Use& use() const { return use_; }

 private:
  // All that the host knows of a micro-step and the kernels' launches depend on; the number of tokens and the
  // longest sequence are in it.
  struct Shape {
    std::vector<std::int32_t> cu_seqlens;
    std::int64_t labels = 0;
    double loss_scale = 1;

    friend bool operator==(const Shape&, const Shape&) = default;
  };
  struct Recorded {
    std::unique_ptr<ops::DeviceGraph> graph;
    nn::Batch batch;                 // what it reads
    at::Tensor loss;                 // what it writes
    std::vector<at::Tensor> tables;  // replaced ones live on for it
  };
  struct Seen {
    Shape shape;
    bool waits = false;  // the host, within the micro-step
    std::optional<Recorded> recorded;
  };

  Seen* find(const Shape& shape);
  at::Tensor run_first(const Shape& shape, const nn::Batch& batch, const MicroStepOptions& options);
  void remember(Seen seen);
  bool record(Seen& seen, const nn::Batch& batch, const MicroStepOptions& options);

  const nn::CausalLM& model_;
  std::deque<Seen> seen_;          // the latest last
  ops::DeviceGraph::Pool pool_{};  // of the first graph, for all
  Use use_;
  bool failed_ = false, warned_ = false, warned_of_waits_ = false;
};

}  // namespace lorikeet::train
