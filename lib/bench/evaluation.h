#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/run_record.h"

// From runs' steps to what a benchmark shows of them: arithmetic alone.
namespace lorikeet::bench {

/// The middle of some values and how far they reach.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
  std::size_t count = 0;
};

/// `values` is not empty.
Spread spread_of(std::vector<double> values);

/// True when each has several values and their ranges don't meet: the difference is more than the noise that
/// was seen. Of three values each, chance alone does that once in ten times.
bool apart(const Spread& a, const Spread& b);

/// One run that was tried.
struct Attempt {
  int round = 0;                 ///< runs of one round stand next to each other in time
  std::optional<RunRecord> run;  ///< nothing when it failed
  int exit_code = 0;             ///< of a run that failed
  std::string error;             ///< its own words
};

/// Runs that are alike: repeats on the same number of devices.
struct Group {
  std::string name;  ///< "2 devices"
  int devices = 1;
  std::vector<Attempt> attempts;  ///< may be empty: interrupted before
};

/// A group's line in the table. What isn't known has no value.
struct Row {
  std::string name;
  int devices = 1;
  std::optional<Spread> tokens_per_second;  ///< of all devices together, a value a run
  std::optional<Spread> speed_up;           ///< against the base, a value for each round that has both
  std::optional<double> efficiency;         ///< speed-up over the number of devices
  std::optional<double> comm_share;         ///< of the time, waiting for others; only CPU processes can tell
  std::optional<double> data_share;         ///< of the time, waiting for micro-batches
  std::optional<std::uint64_t> memory_peak_bytes;  ///< of a device
  std::optional<double> loss_difference;           ///< largest of a step, relative to the base's first run
  std::optional<int> threads;                      ///< of each process
  std::string strategy;
  std::vector<std::string> device_names;
  std::vector<std::string> failures;  ///< "round 1: exit code 1: out of memory"

  std::size_t runs() const { return tokens_per_second ? tokens_per_second->count : 0; }
};

struct Evaluation {
  std::optional<std::size_t> base;  ///< the first row that has runs: what others are measured against
  std::vector<Row> rows;            ///< as the groups
};

/// Tokens a second of a run over all its steps behind the first `warmup_steps`: their tokens divided by their
/// time. Throws Error (kUsage) when there are none.
double tokens_per_second(const RunRecord& run, std::int64_t warmup_steps);

/// The largest relative difference between two runs' losses at the same step, over all steps that both have;
/// infinity where only one of the two losses is finite.
double loss_difference(const RunRecord& run, const RunRecord& base);

/// Makes a row of each group. Throws Error (kUsage) when runs aren't comparable, or have no steps behind the
/// warm-up.
Evaluation evaluate(const std::vector<Group>& groups, std::int64_t warmup_steps);

}  // namespace lorikeet::bench
