#pragma once

#include <functional>
#include <string>

#include "bench/evaluation.h"

namespace lorikeet::bench {

/// A difference of losses from which on runs are said not to compute the same: sums in another order move a
/// mean over a step's tokens far less, even in bf16.
inline constexpr double kMostLossDifference = 0.01;

/// Makes the command that trains on so many devices.
using Command = std::function<std::string(int devices)>;

/// What to do with the machine, in a sentence: "4 devices are 0.95x of one: train on one; the command is
/// ...". Of rows by rising numbers of devices the smallest number is meant that no larger one is shown to
/// beat, that is, with ranges of tokens/s that don't meet. A difference that isn't shown is said to be so.
std::string scaling_verdict(const Evaluation& evaluation, const Command& command);

/// How much faster the second of two rows is than the first: "b is 1.35x as fast as a".
std::string comparison_verdict(const Evaluation& evaluation);

/// What a reader has to know beside the verdict, a sentence each: runs that failed, losses that differ,
/// threads, figures that can't be had.
std::vector<std::string> notes(const Evaluation& evaluation, std::int64_t warmup_steps);

}  // namespace lorikeet::bench
