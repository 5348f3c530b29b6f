#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "comm/communicator.h"
#include "nn/causal_lm.h"

namespace lorikeet::parallel {

/// What is gathered beside a unit that is in use.
struct Ahead {
  const nn::WeightUnit* next;
  const nn::WeightUnit* behind_it;  ///< where the next one is still there from its last use, else nullptr
};

/// Gathers the units of a model whose matrices are split over the ranks of `group`, each while it is in use,
/// and the next one ahead of it. Two gathered layers are alive at a time at most, or one and a table, or a
/// table and the two layers behind it.
///
/// Which one is next follows from the order of a training micro-batch: embedding, layers, head, then the
/// layers backwards; the embedding's table takes no part in backward, and the head's gradient is made in
/// forward. So the last layer stays from forward to backward and the first from one micro-batch to the next;
/// beside such a one the unit behind it is fetched. A tied table is gathered for each of its two uses. Any
/// other order (evaluation) works too, with one unit fetched late where it turns around.
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

  /// Waits for what was fetched ahead of a pass that doesn't come any more. All ranks call it at the end.
  void drain();

  /// Gathered units that are held now.
  std::size_t alive() const { return alive_.size(); }
  /// Most bytes of gathered units that were held at a time.
  std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Gathered {
    at::Tensor buffer;
    comm::Pending pending;
  };
  void start(const nn::WeightUnit& unit);
  bool move_to(const nn::WeightUnit& unit);
  void keep(const Ahead& ahead);

  comm::Communicator& group_;
  nn::CausalLM& model_;
  std::vector<const nn::WeightUnit*> order_;  // of a training micro-batch
  std::size_t at_ = 0;                        // in it: the unit in use
  std::map<const nn::WeightUnit*, Gathered> alive_;
  std::int64_t peak_bytes_ = 0;
};

/// The units of a training micro-batch in the order of their use, forward then backward: what a gatherer
/// fetches. Units without matrices are left out.
std::vector<const nn::WeightUnit*> use_order(const nn::CausalLM& model);

/// What gathering costs one of `size` ranks.
struct GatherCost {
  std::int64_t payload_bytes = 0;  ///< of a training micro-batch's all-gathers
  std::int64_t buffer_bytes = 0;   ///< of the gathered units that are alive at a time, at most
  std::int64_t largest_unit_bytes = 0;
};
GatherCost gather_cost(const nn::CausalLM& model, int size);

}  // namespace lorikeet::parallel
