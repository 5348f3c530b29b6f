#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "comm/communicator.h"
#include "nn/causal_lm.h"

namespace lorikeet::parallel {

/// Brings the matrices of a model's units into buffers on its device, each while it is in use, and the next
/// one of the stated order ahead of it. Where the next one is still there from its last use (the last layer
/// between forward and backward, the first between two micro-batches), the one after it is fetched. Two
/// layers are there at a time at most, or one and a table, or a table and two layers.
class UnitPrefetcher : public nn::UnitLender {
 public:
  /// The store of `model` borrows here until this object ends.
  explicit UnitPrefetcher(nn::CausalLM& model);
  ~UnitPrefetcher() override;
  UnitPrefetcher(const UnitPrefetcher&) = delete;
  UnitPrefetcher& operator=(const UnitPrefetcher&) = delete;

  void expect(const std::vector<const nn::WeightUnit*>& order) override;
  /// Throws Error where `unit` isn't the next one of the stated order.
  nn::UnitLoan borrow(const nn::WeightUnit& unit) override;

  /// Fetches what is left of the pass that was begun, without computing it. A pass begins with `expect`.
  /// Nothing where it is complete.
  void finish_pass();

  /// Waits for what was fetched ahead of a pass that doesn't come any more.
  void drain();

  /// Fetched units that are held now.
  std::size_t alive() const { return alive_.size(); }
  /// Most bytes of fetched units that were held at a time.
  std::int64_t peak_bytes() const { return peak_bytes_; }

 protected:
  /// Memory for the whole matrices of `unit`, uninitialised.
  virtual at::Tensor buffer_of(const nn::WeightUnit& unit) = 0;
  /// Begins to fill it.
  virtual comm::Pending fetch(const nn::WeightUnit& unit, const at::Tensor& buffer) = 0;

 private:
  struct Fetched {
    at::Tensor buffer;
    comm::Pending pending;
  };
  void start(const nn::WeightUnit& unit);
  void release_all_but(const std::vector<const nn::WeightUnit*>& units);

  nn::CausalLM& model_;
  std::vector<const nn::WeightUnit*> order_;
  std::size_t next_ = 0;  // in it: the unit that is borrowed next
  bool in_pass_ = false;  // since the order was stated or last begun again not all of it was borrowed
  std::map<const nn::WeightUnit*, Fetched> alive_;
  std::int64_t peak_bytes_ = 0;
};

/// What fetching costs.
struct FetchCost {
  std::int64_t payload_bytes = 0;  ///< of what a training micro-batch fetches
  std::int64_t buffer_bytes = 0;   ///< of the fetched units that are there at a time, at most
  std::int64_t largest_unit_bytes = 0;
};
/// For units that lie in `parts` equal parts, or whole (1).
FetchCost fetch_cost(const nn::CausalLM& model, int parts);

}  // namespace lorikeet::parallel
