#include "data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/philox.h"

namespace lorikeet::data {
namespace {

// Fisher-Yates from the back (Knuth, TAOCP 2, algorithm 3.4.2P). Our own, as std::shuffle's draws are the
// library's choice and would change the order of a run with its version.
std::vector<std::uint32_t> permutation(std::size_t count, PhiloxStream stream) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[stream.below(i)]);
  return order;
}

}  // namespace

Sampler::Sampler(const TokenDataset& dataset, SamplerOptions options)
    : options_(options), count_(dataset.size()) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw Error(std::string("[batch] ") + what);
  };
  require(count_ > 0, "expected examples to train on, the data set has none");
  require(count_ <= UINT32_MAX, "expected at most 4294967295 examples");
  require(options_.examples_per_step.has_value() != options_.tokens_per_step.has_value(),
          "expected exactly one of batch.global and batch.global_tokens");
  require(options_.examples_per_step.value_or(1) > 0, "expected batch.global to be at least 1");
  require(options_.tokens_per_step.value_or(1) > 0, "expected batch.global_tokens to be at least 1");
  require(options_.epochs > 0, "expected training.epochs to be at least 1");
  require(options_.max_steps.value_or(1) > 0, "expected training.max_steps to be at least 1");
  if (options_.tokens_per_step) {
    lengths_.reserve(count_);
    for (std::size_t i = 0; i < count_; ++i) lengths_.push_back(static_cast<std::int32_t>(dataset.length(i)));
  }
  total_steps_ = options_.max_steps ? *options_.max_steps : first_step(options_.epochs);
}

std::vector<std::uint32_t> Sampler::order_of(std::int64_t epoch) const {
  if (options_.shuffle) {
    return permutation(count_, PhiloxStream(options_.seed, "sampler/epoch/" + std::to_string(epoch)));
  }
  std::vector<std::uint32_t> order(count_);
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  return order;
}

const Sampler::Epoch& Sampler::epoch(std::int64_t number) const {
  if (current_.number == number) return current_;
  current_ = {number, order_of(number), {}};
  if (options_.tokens_per_step) {
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const std::int64_t length = lengths_[current_.order[i]];
      if (tokens > 0 && tokens + length > *options_.tokens_per_step) {
        current_.step_ends.push_back(i);
        tokens = 0;
      }
      tokens += length;
    }
    current_.step_ends.push_back(count_);
  }
  return current_;
}

std::int64_t Sampler::steps_in_epoch(std::int64_t number) const {
  if (options_.examples_per_step) {
    const auto count = static_cast<std::int64_t>(count_);
    return count / *options_.examples_per_step + (count % *options_.examples_per_step != 0 ? 1 : 0);
  }
  return static_cast<std::int64_t>(epoch(number).step_ends.size());
}

std::int64_t Sampler::first_step(std::int64_t number) const {
  if (options_.examples_per_step) return number * steps_in_epoch(0);
  while (static_cast<std::int64_t>(first_steps_.size()) <= number)
    first_steps_.push_back(first_steps_.back() +
                           steps_in_epoch(static_cast<std::int64_t>(first_steps_.size()) - 1));
  return first_steps_[static_cast<std::size_t>(number)];
}

Step Sampler::step(std::int64_t index) const {
  if (index < 0 || index >= total_steps_) {
    throw Error(
        "[data] step " + std::to_string(index) + " is not one of this run's " + std::to_string(total_steps_),
        ErrorKind::kRunFailed);
  }
  std::int64_t number = 0;
  if (options_.examples_per_step) {
    number = index / steps_in_epoch(0);
  } else {
    // The epoch asked for last is nearly always the one: begin there if it isn't past the step.
    if (current_.number >= 0 && first_step(current_.number) <= index) number = current_.number;
    while (first_step(number + 1) <= index) ++number;
  }
  const Epoch& now = epoch(number);
  const auto k = static_cast<std::size_t>(index - first_step(number));
  std::size_t begin = 0;
  std::size_t end = 0;
  if (options_.examples_per_step) {
    const auto size = static_cast<std::size_t>(*options_.examples_per_step);
    begin = k * size;
    end = size < count_ - begin ? begin + size : count_;
  } else {
    begin = k == 0 ? 0 : now.step_ends[k - 1];
    end = now.step_ends[k];
  }
  Step step{index, number, end == count_, {}};
  step.examples.assign(now.order.begin() + static_cast<std::ptrdiff_t>(begin),
                       now.order.begin() + static_cast<std::ptrdiff_t>(end));
  return step;
}

std::vector<std::uint32_t> seeded_order(std::size_t count, std::uint64_t seed, const std::string& purpose) {
  return permutation(count, PhiloxStream(seed, purpose));
}

std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>> split_indices(std::size_t count,
                                                                                double fraction,
                                                                                std::uint64_t seed) {
  if (!(fraction > 0.0 && fraction < 1.0))
    throw Error("[data.validation.fraction] expected a number between 0 and 1, got " +
                std::to_string(fraction));
  if (count < 2 || count > UINT32_MAX)
    throw Error("[data.validation.fraction] expected at least 2 rows to split, and at most 4294967295; got " +
                std::to_string(count));
  const auto wanted = static_cast<std::size_t>(std::llround(fraction * static_cast<double>(count)));
  const std::size_t held = std::clamp<std::size_t>(wanted, 1, count - 1);
  std::vector<std::uint32_t> order = seeded_order(count, seed, "validation-split");
  const auto cut = order.begin() + static_cast<std::ptrdiff_t>(held);
  std::sort(order.begin(), cut);
  std::sort(cut, order.end());
  return {{cut, order.end()}, {order.begin(), cut}};
}

}  // namespace lorikeet::data
