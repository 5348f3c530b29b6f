#pragma once

#include <cstdint>
#include <functional>

#include "comm/communicator.h"
#include "data/micro_batch.h"
#include "nn/causal_lm.h"

namespace lorikeet::train {

struct Evaluation {
  double nll_sum = 0;  ///< over all label tokens
  std::int64_t label_tokens = 0;
  bool interrupted = false;  ///< of the data set a part alone was computed

  /// Mean negative log-likelihood of a label token, in nats.
  double loss() const { return label_tokens > 0 ? nll_sum / static_cast<double>(label_tokens) : 0.0; }
};

/// Loss over a whole data set, no gradient. With a `group` each rank takes its part, and all get the same
/// result. `interrupted`, where it is given, is asked before each batch: as soon as it says so on one rank,
/// that rank leaves out what is still to do.
Evaluation evaluate(const nn::CausalLM& model, const data::TokenDataset& dataset,
                    const data::MicroOptions& micro, const at::Device& device,
                    comm::Communicator* group = nullptr, const std::function<bool()>& interrupted = {});

}  // namespace lorikeet::train
