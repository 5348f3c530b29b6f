#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "comm/communicator.h"
#include "nn/causal_lm.h"

namespace lorikeet::parallel {

/// Gathers the units of a model whose matrices are split over the ranks of `group`, each while it is in use,
/// and the next one of the stated order ahead of it. Where the next one is still there from its last use (the
/// last layer between forward and backward, the first between two micro-batches), the one after it is
/// fetched. Two gathered layers are alive at a time at most, or one and a table, or a table and two layers.
///
/// All ranks use the units in the same order: they run the same number of passes, see
/// nn::WeightStore::is_split.
class WeightGatherer : public nn::UnitLender {
 public:
  /// `model` is allocated as part group.rank() of group.size(); its store borrows here until this object
  /// ends.
  WeightGatherer(comm::Communicator& group, nn::CausalLM& model);
  ~WeightGatherer() override;
  WeightGatherer(const WeightGatherer&) = delete;
  WeightGatherer& operator=(const WeightGatherer&) = delete;

  void expect(const std::vector<const nn::WeightUnit*>& order) override;
  /// Throws Error where `unit` isn't the next one of the stated order.
  nn::UnitLoan borrow(const nn::WeightUnit& unit) override;

  /// Takes part in what is left of the pass that was begun, without computing it: for a rank whose pass ended
  /// early, while the others wait for its parts of the units. A pass begins with `expect`. Nothing where it
  /// is complete.
  void finish_pass();

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
  void release_all_but(const std::vector<const nn::WeightUnit*>& units);

  comm::Communicator& group_;
  nn::CausalLM& model_;
  std::vector<const nn::WeightUnit*> order_;
  std::size_t next_ = 0;  // in it: the unit that is borrowed next
  bool in_pass_ = false;  // since the order was stated or last begun again not all of it was borrowed
  std::map<const nn::WeightUnit*, Gathered> alive_;
  std::int64_t peak_bytes_ = 0;
};

/// What gathering costs one of `size` ranks.
struct GatherCost {
  std::int64_t payload_bytes = 0;  ///< of a training micro-batch's all-gathers
  std::int64_t buffer_bytes = 0;   ///< of the gathered units that are alive at a time, at most
  std::int64_t largest_unit_bytes = 0;
};
GatherCost gather_cost(const nn::CausalLM& model, int size);

}  // namespace lorikeet::parallel
