#include "train/graphed_micro_steps.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/reason.h"
#include "ops/experts/routing.h"

namespace lorikeet::train {
namespace {

// Rows of a fixed length give one or two shapes; packed rows hardly ever one twice.
constexpr std::int64_t kMostGraphs = 8;
constexpr std::size_t kMostSeen = 64;

// The tensors that a pass reads of a batch.
template <typename Batch>
auto tensors(Batch& batch) {
  return std::array{&batch.tokens, &batch.position_ids, &batch.sample_ids, &batch.label_rows, &batch.labels};
}

nn::Batch copy_of(const nn::Batch& batch) {
  nn::Batch copy = batch;
  copy.sequences.cu_seqlens_device = batch.sequences.cu_seqlens_device.clone();
  for (at::Tensor* tensor : tensors(copy)) *tensor = tensor->clone();
  return copy;
}

void copy_into(nn::Batch& to, const nn::Batch& from) {
  const auto sources = tensors(from);
  const auto targets = tensors(to);
  for (std::size_t i = 0; i < sources.size(); ++i) targets[i]->copy_(*sources[i]);
}

class NotRecordable : public Error {
 public:
  explicit NotRecordable(const std::string& reason)
      : Error(
            "[training.cuda_graphs] CUDA refused a part of a micro-step's recording, behind which a process "
            "can't go on: " +
                reason + "; set training.cuda_graphs=false",
            ErrorKind::kRunFailed) {}
};

// Ends a recording; `failure`: what was thrown in it, which says more than the error of the end.
void end(ops::DeviceGraph& graph, const std::exception_ptr& failure) {
  try {
    graph.end();
  } catch (const std::exception& of_end) {
    if (!failure) throw NotRecordable(comm::reason(of_end));
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      throw NotRecordable(comm::reason(error));
    }
  }
}

}  // namespace

at::Tensor GraphedMicroSteps::run(const nn::Batch& batch, const MicroStepOptions& options) {
  ++use_.micro_steps;
  if (failed_ || options.reducer != nullptr) return run_micro_step(model_, batch, options);
  const Shape shape{batch.sequences.cu_seqlens, batch.label_count, options.loss_scale};
  Seen* seen = find(shape);
  if (seen == nullptr) return run_first(shape, batch, options);
  if (seen->waits) return run_micro_step(model_, batch, options);
  if (!seen->recorded && (use_.graphs == kMostGraphs || !record(*seen, batch, options)))
    return run_micro_step(model_, batch, options);
  Recorded& recorded = *seen->recorded;
  copy_into(recorded.batch, batch);
  recorded.graph->launch();
  ++use_.launched;
  return recorded.loss;
}

GraphedMicroSteps::Seen* GraphedMicroSteps::find(const Shape& shape) {
  const auto found =
      std::find_if(seen_.begin(), seen_.end(), [&](const Seen& s) { return s.shape == shape; });
  return found != seen_.end() ? &*found : nullptr;
}

// Whether the host waits depends on shapes alone.
at::Tensor GraphedMicroSteps::run_first(const Shape& shape, const nn::Batch& batch,
                                        const MicroStepOptions& options) {
  const std::int64_t waits = ops::routing_waits();
  at::Tensor loss = run_micro_step(model_, batch, options);
  const bool waited = ops::routing_waits() != waits;
  if (waited && !warned_of_waits_) {
    log_warning("training.cuda_graphs: in micro-steps of " + std::to_string(batch.size()) +
                " tokens the host has to read how many tokens each expert has, which can't be recorded: they "
                "run as ever (docs/families.md says when experts are computed one by one)");
    warned_of_waits_ = true;
  }
  remember({.shape = shape, .waits = waited, .recorded = {}});
  return loss;
}

// Forgets the oldest shape without a graph where there are many.
void GraphedMicroSteps::remember(Seen seen) {
  if (seen_.size() == kMostSeen) {
    if (use_.graphs == 0 && !warned_ && !warned_of_waits_) {
      log_warning(
          "training.cuda_graphs: none of " + std::to_string(kMostSeen) +
          " micro-steps had the shape of another, so that nothing was recorded: graphs are for rows of "
          "one length (docs/cuda-graphs.md)");
      warned_ = true;
    }
    seen_.erase(
        std::find_if(seen_.begin(), seen_.end(), [](const Seen& s) { return !s.recorded.has_value(); }));
  }
  seen_.push_back(std::move(seen));
}

bool GraphedMicroSteps::record(Seen& seen, const nn::Batch& batch, const MicroStepOptions& options) {
  try {
    // A graph takes memory of its own: what earlier micro-steps left free is of no use to it.
    at::accelerator::emptyCache();
    Recorded made;
    made.graph = ops::make_device_graph(pool_);
    made.batch = copy_of(batch);
    made.tables = model_.rotary_tables();
    made.graph->begin();
    std::exception_ptr failure;
    try {
      made.loss = run_micro_step(model_, made.batch, options);
    } catch (...) {
      failure = std::current_exception();
    }
    end(*made.graph, failure);
    if (failure) std::rethrow_exception(failure);
    pool_ = made.graph->pool();
    seen.recorded = std::move(made);
    ++use_.graphs;
    return true;
  } catch (const NotRecordable&) {
    throw;
  } catch (const std::exception& error) {
    log_warning("training.cuda_graphs: a micro-step of " + std::to_string(batch.size()) +
                " tokens couldn't be recorded, and the run goes on without graphs: " + comm::reason(error));
    failed_ = true;
    seen_.clear();
    use_.graphs = 0;
    at::accelerator::emptyCache();
    return false;
  }
}

}  // namespace lorikeet::train
