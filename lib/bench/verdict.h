#pragma once

#include <functional>
#include <string>

#include "bench/evaluation.h"

namespace lorikeet::bench {

/// A difference of losses from which on runs are said not to compute the same: sums in another order move a
/// mean over a step's tokens far less, even in bf16.
inline constexpr double kMostLossDifference = 0.01;

/// What a measurement lacks that doesn't suffice to tell two numbers of devices apart.
enum class More {
  kRepeats,     ///< single runs show no spread
  kLongerRuns,  ///< the spread is too wide: runs of more steps vary less
};

/// Makes the commands that a verdict names.
struct Commands {
  std::function<std::string(int devices)> train;  ///< trains on so many devices
  std::function<std::string(More more)> measure;  ///< the benchmark again, with more of that
};

/// What to do with the machine, in a sentence: "4 devices are 0.95x of one: train on one; the command is
/// ...". Of rows by rising numbers of devices the smallest number is meant that no larger one is shown to
/// beat, that is, with ranges of tokens/s that don't meet. Where the ranges of a number and of the base meet,
/// the sentence says what was measured, that it may be chance, and the command that measures more.
std::string scaling_verdict(const Evaluation& evaluation, const Commands& commands);

/// How much faster the second of two rows is than the first: "b is 1.35x as fast as a", or that this can't
/// be told.
std::string comparison_verdict(const Evaluation& evaluation);

/// What a reader has to know beside the verdict, a sentence each: runs that failed, losses that differ,
/// threads, figures that can't be had.
std::vector<std::string> notes(const Evaluation& evaluation, std::int64_t warmup_steps);

}  // namespace lorikeet::bench
