#include "parallel/weight_gatherer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace lorikeet::parallel {
namespace {

// What comes behind place `at` of a training micro-batch's order.
Ahead ahead_of(const std::vector<const nn::WeightUnit*>& order, std::size_t at) {
  const std::size_t size = order.size();
  const nn::WeightUnit* next = order[(at + 1) % size];
  const bool stays = next == order[(at + size - 1) % size];
  return {next, stays ? order[(at + 2) % size] : nullptr};
}

}  // namespace

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
  const auto whole = [size](const nn::WeightUnit& unit) { return unit.part_bytes(size) * size; };
  GatherCost cost;
  const auto order = use_order(model);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Ahead ahead = ahead_of(order, i);
    std::set<const nn::WeightUnit*> alive{order[i], ahead.next};
    if (ahead.behind_it == nullptr) {
      cost.payload_bytes += whole(*ahead.next);
    } else {
      alive.insert(ahead.behind_it);
    }
    std::int64_t bytes = 0;
    for (const nn::WeightUnit* unit : alive) bytes += whole(*unit);
    cost.buffer_bytes = std::max(cost.buffer_bytes, bytes);
    cost.largest_unit_bytes = std::max(cost.largest_unit_bytes, whole(*order[i]));
  }
  return cost;
}

WeightGatherer::WeightGatherer(comm::Communicator& group, nn::CausalLM& model)
    : group_(group), model_(model), order_(use_order(model)) {
  at_ = order_.size() - 1;
  model_.store().gather_by(this);
}

WeightGatherer::~WeightGatherer() { model_.store().gather_by(nullptr); }

// To the next place in the order where `unit` is used; false where that is this one.
bool WeightGatherer::move_to(const nn::WeightUnit& unit) {
  if (alive_.contains(&unit) && order_[at_] == &unit) return false;
  for (std::size_t step = 1; step <= order_.size(); ++step) {
    const std::size_t place = (at_ + step) % order_.size();
    if (order_[place] != &unit) continue;
    at_ = place;
    return true;
  }
  throw Error("[parallel] unit '" + unit.name() + "' is not one of this model's", ErrorKind::kRunFailed);
}

void WeightGatherer::keep(const Ahead& ahead) {
  for (auto entry = alive_.begin(); entry != alive_.end();) {
    const nn::WeightUnit* unit = entry->first;
    const bool stays = unit == order_[at_] || unit == ahead.next || unit == ahead.behind_it;
    if (!stays) entry->second.pending.wait();  // perhaps fetched ahead for a pass that didn't come
    entry = stays ? std::next(entry) : alive_.erase(entry);
  }
}

void WeightGatherer::drain() {
  for (auto& [unit, gathered] : alive_) gathered.pending.wait();
}

void WeightGatherer::start(const nn::WeightUnit& unit) {
  if (alive_.contains(&unit)) return;
  Gathered& gathered = alive_[&unit];
  gathered.buffer = at::empty({unit.part().numel() * group_.size()}, unit.part().options());
  std::int64_t bytes = 0;
  for (const auto& [other, held] : alive_) bytes += held.buffer.numel();
  peak_bytes_ = std::max(peak_bytes_, bytes);
  gathered.pending = group_.all_gather(gathered.buffer, unit.part());
}

at::Tensor WeightGatherer::gather(const nn::WeightUnit& unit) {
  const at::NoGradGuard no_grad;
  if (!move_to(unit)) return alive_.at(&unit).buffer;
  const Ahead ahead = ahead_of(order_, at_);
  keep(ahead);
  start(unit);
  start(*ahead.next);
  Gathered& gathered = alive_.at(&unit);
  gathered.pending.wait();
  // Not before: this unit is needed first.
  if (ahead.behind_it != nullptr) start(*ahead.behind_it);
  return gathered.buffer;
}

}  // namespace lorikeet::parallel
