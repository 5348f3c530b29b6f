#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "comm/communicator.h"
#include "nn/causal_lm.h"

namespace lorikeet::parallel {

/// Gathers the units of a model whose matrices are split over the ranks of `group`, each while it is in use,
/// and the next one ahead of it. Two gathered units are alive at a time at most: the one in use and the next.
///
/// Which one is next follows from the order of a training micro-batch: embedding, layers, head, then the
/// layers backwards; the embedding's table takes no part in backward, and the head's gradient is made in
/// forward. The last layer stays from forward to backward. A tied table is gathered for each of its two uses.
/// Any other order (evaluation) works too, with one unit fetched late where it turns around.
///
/// All ranks use the units in the same order: they run the same number of passes, see
/// nn::WeightStore::is_split.
class WeightGatherer : public nn::UnitGatherer {
 public:
  /// `model` is allocated as part group.rank() of group.size(); its store is told to gather here until this
  /// object ends.
  WeightGatherer(comm::Communicator& group, nn::CausalLM& model);
  ~WeightGatherer() override;
  WeightGatherer(const WeightGatherer&) = delete;
  WeightGatherer& operator=(const WeightGatherer&) = delete;

  at::Tensor gather(const nn::WeightUnit& unit) override;

  /// Gathered units that are held now, for tests.
  std::size_t alive() const { return alive_.size(); }

 private:
  struct Gathered {
    at::Tensor buffer;
    comm::Pending pending;
  };
  void start(const nn::WeightUnit& unit);
  void move_to(const nn::WeightUnit& unit);

  comm::Communicator& group_;
  nn::CausalLM& model_;
  std::vector<const nn::WeightUnit*> order_;  // of a training micro-batch
  std::size_t at_ = 0;                        // in it: the unit in use
  std::map<const nn::WeightUnit*, Gathered> alive_;
};

/// The units of a training micro-batch in the order of their use, forward then backward: what a gatherer
/// fetches. Units without matrices are left out.
std::vector<const nn::WeightUnit*> use_order(const nn::CausalLM& model);

/// What gathering costs one of `size` ranks.
struct GatherCost {
  std::int64_t payload_bytes = 0;  ///< of a training micro-batch's all-gathers
  std::int64_t buffer_bytes = 0;   ///< of the largest two units that are alive at a time
  std::int64_t largest_unit_bytes = 0;
};
GatherCost gather_cost(const nn::CausalLM& model, int size);

}  // namespace lorikeet::parallel
