#include "parallel/unit_prefetcher.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace lorikeet::parallel {
namespace {

using Order = std::vector<const nn::WeightUnit*>;

// Units that have nothing to fetch are never asked for.
Order fetched_of(Order order) {
  std::erase_if(order, [](const nn::WeightUnit* unit) { return unit->matrix_bytes() == 0; });
  return order;
}

// What is fetched, or still there, beside the unit at place `at` of an order that is gone through again and
// again: the next one, and where that is the last one too, the one after it.
Order prefetched(const Order& order, std::size_t at) {
  const std::size_t size = order.size();
  const nn::WeightUnit* next = order[(at + 1) % size];
  if (next == order[(at + size - 1) % size]) return {next, order[(at + 2) % size]};
  return {next};
}

}  // namespace

FetchCost fetch_cost(const nn::CausalLM& model, int parts) {
  const auto whole = [parts](const nn::WeightUnit& unit) { return unit.part_bytes(parts) * parts; };
  FetchCost cost;
  const Order order = fetched_of(model.units_in_order(/*training=*/true));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Order ahead = prefetched(order, i);
    // Of two the first is still there.
    if (ahead.size() == 1) cost.payload_bytes += whole(*ahead[0]);
    std::set<const nn::WeightUnit*> alive{order[i]};
    alive.insert(ahead.begin(), ahead.end());
    std::int64_t bytes = 0;
    for (const nn::WeightUnit* unit : alive) bytes += whole(*unit);
    cost.buffer_bytes = std::max(cost.buffer_bytes, bytes);
    cost.largest_unit_bytes = std::max(cost.largest_unit_bytes, whole(*order[i]));
  }
  return cost;
}

UnitPrefetcher::UnitPrefetcher(nn::CausalLM& model) : model_(model) { model_.store().lend_by(this); }

UnitPrefetcher::~UnitPrefetcher() { model_.store().lend_by(nullptr); }

void UnitPrefetcher::expect(const Order& order) {
  order_ = fetched_of(order);
  next_ = 0;
  in_pass_ = !order_.empty();
}

void UnitPrefetcher::release_all_but(const Order& units) {
  for (auto entry = alive_.begin(); entry != alive_.end();) {
    const bool stays = std::find(units.begin(), units.end(), entry->first) != units.end();
    if (!stays) entry->second.pending.wait();  // perhaps fetched ahead for a pass that didn't come
    entry = stays ? std::next(entry) : alive_.erase(entry);
  }
}

void UnitPrefetcher::finish_pass() {
  while (in_pass_) borrow(*order_[next_]);
}

void UnitPrefetcher::drain() {
  for (auto& [unit, fetched] : alive_) fetched.pending.wait();
}

void UnitPrefetcher::start(const nn::WeightUnit& unit) {
  if (alive_.contains(&unit)) return;
  // A unit counts as alive once its fetch has begun: where memory runs out, finish_pass asks for it again.
  const at::Tensor buffer = buffer_of(unit);
  alive_.emplace(&unit, Fetched{buffer, fetch(unit, buffer)});
  std::int64_t bytes = 0;
  for (const auto& [other, held] : alive_) bytes += held.buffer.numel();
  peak_bytes_ = std::max(peak_bytes_, bytes);
}

nn::UnitLoan UnitPrefetcher::borrow(const nn::WeightUnit& unit) {
  if (order_.empty() || order_[next_] != &unit) {
    throw Error("[parallel] expected unit '" + (order_.empty() ? "none" : order_[next_]->name()) +
                    "' to be the next one in use, got '" + unit.name() + "'",
                ErrorKind::kRunFailed);
  }
  Order stay = prefetched(order_, next_);
  stay.insert(stay.begin(), &unit);
  release_all_but(stay);
  start(unit);
  start(*stay[1]);
  Fetched& fetched = alive_.at(&unit);
  fetched.pending.wait();
  // Not before: this unit is needed first.
  if (stay.size() > 2) start(*stay[2]);
  next_ = (next_ + 1) % order_.size();
  in_pass_ = next_ > 0;
  return {&unit, fetched.buffer};
}

}  // namespace lorikeet::parallel
