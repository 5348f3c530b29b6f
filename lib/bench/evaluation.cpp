#include "bench/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "bench/comparable.h"

namespace lorikeet::bench {
namespace {

// A member of the steps behind the warm-up, summed up.
template <typename Number>
double sum(const RunRecord& run, std::int64_t warmup_steps, Number StepSample::*member) {
  double total = 0;
  for (const StepSample& step : run.steps) {
    if (step.step > warmup_steps) total += static_cast<double>(step.*member);
  }
  return total;
}

std::vector<const RunRecord*> runs_of(const Group& group) {
  std::vector<const RunRecord*> runs;
  for (const Attempt& attempt : group.attempts) {
    if (attempt.run) runs.push_back(&*attempt.run);
  }
  return runs;
}

// The share of all runs' time behind the warm-up that went into `member`.
double share(const std::vector<const RunRecord*>& runs, std::int64_t warmup_steps,
             double StepSample::*member) {
  double part = 0, whole = 0;
  for (const RunRecord* run : runs) {
    part += sum(*run, warmup_steps, member);
    whole += sum(*run, warmup_steps, &StepSample::step_seconds);
  }
  return part / whole;
}

Row make_row(const Group& group, std::int64_t warmup_steps) {
  Row row{.name = group.name, .devices = group.devices};
  for (const Attempt& attempt : group.attempts) {
    if (attempt.run) continue;
    row.failures.push_back("round " + std::to_string(attempt.round + 1) + ": exit code " +
                           std::to_string(attempt.exit_code) +
                           (attempt.error.empty() ? "" : ": " + attempt.error));
  }
  const std::vector<const RunRecord*> runs = runs_of(group);
  if (runs.empty()) return row;
  std::vector<double> rates;
  std::uint64_t memory = 0;
  for (const RunRecord* run : runs) {
    rates.push_back(tokens_per_second(*run, warmup_steps));
    for (const StepSample& step : run->steps) memory = std::max(memory, step.memory_peak_bytes);
  }
  row.tokens_per_second = spread_of(rates);
  row.data_share = share(runs, warmup_steps, &StepSample::data_seconds);
  const RunRecord& first = *runs.front();
  row.comm_share = share(runs, warmup_steps, &StepSample::comm_seconds);
  row.memory_peak_bytes = memory;
  row.threads = first.threads;
  row.strategy = first.strategy;
  row.device_names = first.devices;
  return row;
}

// A ratio for each round in which both ran; where there is none, that of the medians.
std::vector<double> ratios(const Group& group, const Group& base, std::int64_t warmup_steps) {
  std::map<int, double> base_rates;
  for (const Attempt& attempt : base.attempts) {
    if (attempt.run) base_rates[attempt.round] = tokens_per_second(*attempt.run, warmup_steps);
  }
  std::vector<double> found;
  for (const Attempt& attempt : group.attempts) {
    const auto other = base_rates.find(attempt.round);
    if (attempt.run && other != base_rates.end())
      found.push_back(tokens_per_second(*attempt.run, warmup_steps) / other->second);
  }
  return found;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back(), values.size()};
}

bool apart(const Spread& a, const Spread& b) {
  return a.count > 1 && b.count > 1 && (a.most < b.least || b.most < a.least);
}

double tokens_per_second(const RunRecord& run, std::int64_t warmup_steps) {
  const double seconds = sum(run, warmup_steps, &StepSample::step_seconds);
  if (seconds <= 0) {
    throw Error("[bench] " + run.name + " has no step behind the " + std::to_string(warmup_steps) +
                " of its warm-up; take more steps, or a shorter warm-up");
  }
  return sum(run, warmup_steps, &StepSample::tokens) / seconds;
}

double loss_difference(const RunRecord& run, const RunRecord& base) {
  std::map<std::int64_t, double> losses;
  for (const StepSample& step : base.steps) losses[step.step] = step.loss;
  double largest = 0;
  for (const StepSample& step : run.steps) {
    const auto other = losses.find(step.step);
    if (other == losses.end() || (std::isnan(step.loss) && std::isnan(other->second))) continue;
    const double difference = std::abs(step.loss - other->second) / std::abs(other->second);
    if (step.loss == other->second) continue;
    largest =
        std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(largest, difference);
  }
  return largest;
}

Evaluation evaluate(const std::vector<Group>& groups, std::int64_t warmup_steps) {
  std::vector<const RunRecord*> all;
  Evaluation evaluation;
  for (const Group& group : groups) {
    const auto runs = runs_of(group);
    if (!runs.empty() && !evaluation.base) evaluation.base = evaluation.rows.size();
    all.insert(all.end(), runs.begin(), runs.end());
    evaluation.rows.push_back(make_row(group, warmup_steps));
  }
  if (!evaluation.base) return evaluation;
  require_comparable(all);

  const Group& base = groups[*evaluation.base];
  const Row& base_row = evaluation.rows[*evaluation.base];
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Row& row = evaluation.rows[i];
    if (!row.tokens_per_second) continue;
    std::vector<double> speed_ups =
        i == *evaluation.base ? std::vector<double>{1} : ratios(groups[i], base, warmup_steps);
    if (speed_ups.empty())
      speed_ups.push_back(row.tokens_per_second->median / base_row.tokens_per_second->median);
    row.speed_up = spread_of(speed_ups);
    row.efficiency = row.speed_up->median * base.devices / row.devices;
    double largest = 0;
    for (const RunRecord* run : runs_of(groups[i]))
      largest = std::max(largest, loss_difference(*run, *runs_of(base).front()));
    row.loss_difference = largest;
  }
  return evaluation;
}

}  // namespace lorikeet::bench
