#include "parallel/weight_gatherer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/error.h"

namespace lorikeet::parallel {

std::vector<const nn::WeightUnit*> use_order(const nn::CausalLM& model) {
  // Units are: embedding, one a layer, head. A tied head's matrix is the embedding's.
  std::vector<const nn::WeightUnit*> units;
  for (const auto& unit : model.store().units()) units.push_back(unit.get());
  std::vector<const nn::WeightUnit*> order = units;
  if (model.shape().tied_head) order.push_back(units.front());
  order.insert(order.end(), units.rbegin() + 1, units.rend() - 1);
  std::erase_if(order, [](const nn::WeightUnit* unit) { return unit->matrix_bytes() == 0; });
  return order;
}

GatherCost gather_cost(const nn::CausalLM& model, int size) {
  GatherCost cost;
  const auto order = use_order(model);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t bytes = order[i]->part_bytes(size) * size;
    const nn::WeightUnit* before_last = order[(i + order.size() - 2) % order.size()];
    const nn::WeightUnit* next = order[(i + 1) % order.size()];
    // A unit that was the one before the last is still there: the last layer, on both sides of the head.
    if (order[i] != before_last) cost.payload_bytes += bytes;
    cost.largest_unit_bytes = std::max(cost.largest_unit_bytes, bytes);
    if (next != order[i]) {
      cost.buffer_bytes = std::max(cost.buffer_bytes, bytes + next->part_bytes(size) * size);
    }
  }
  return cost;
}

WeightGatherer::WeightGatherer(comm::Communicator& group, nn::CausalLM& model)
    : group_(group), model_(model), order_(use_order(model)) {
  at_ = order_.size() - 1;
  model_.store().gather_by(this);
}

WeightGatherer::~WeightGatherer() { model_.store().gather_by(nullptr); }

// The next place in the order where `unit` is used; stays where it is in use already.
void WeightGatherer::move_to(const nn::WeightUnit& unit) {
  for (std::size_t step = alive_.contains(&unit) && order_[at_] == &unit ? 0 : 1; step <= order_.size();
       ++step) {
    const std::size_t place = (at_ + step) % order_.size();
    if (order_[place] != &unit) continue;
    at_ = place;
    return;
  }
  throw Error("[parallel] unit '" + unit.name() + "' is not one of this model's", ErrorKind::kRunFailed);
}

void WeightGatherer::start(const nn::WeightUnit& unit) {
  if (alive_.contains(&unit)) return;
  Gathered& gathered = alive_[&unit];
  gathered.buffer = at::empty({unit.part().numel() * group_.size()}, unit.part().options());
  gathered.pending = group_.all_gather(gathered.buffer, unit.part());
}

at::Tensor WeightGatherer::gather(const nn::WeightUnit& unit) {
  const at::NoGradGuard no_grad;
  move_to(unit);
  const nn::WeightUnit* next = order_[(at_ + 1) % order_.size()];
  for (auto entry = alive_.begin(); entry != alive_.end();) {
    const bool stays = entry->first == &unit || entry->first == next;
    if (!stays) entry->second.pending.wait();  // perhaps fetched ahead for a pass that didn't come
    entry = stays ? std::next(entry) : alive_.erase(entry);
  }
  start(unit);
  start(*next);
  Gathered& gathered = alive_.at(&unit);
  gathered.pending.wait();
  return gathered.buffer;
}

}  // namespace lorikeet::parallel
