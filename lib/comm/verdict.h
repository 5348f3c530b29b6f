#pragma once

#include <string>

#include "comm/board.h"

namespace lorikeet::comm {

/// How far a failure is from the first one of a run: of several failures the one with the lowest value caused
/// the others.
enum class Cause {
  kOutside = 0,      ///< killed by something else than its launcher
  kOwnError = 1,     ///< ended with an error of its own
  kOwnSignal = 2,    ///< reported an error of its own, then was killed by its launcher
  kConsequence = 3,  ///< failed because another rank had failed
  kNone = 4          ///< no failure
};

/// How a rank, or all of them, have ended.
struct Verdict {
  Cause cause = Cause::kNone;
  int code = 0;      ///< the exit code: 0, 130 after an interrupt that was obeyed, or a failure's
  std::string text;  ///< what failed, for the user; empty without a failure
};

/// The verdict on one rank. `status` is waitpid's, `ended_by_launcher` says that a signal of its launcher
/// ended it, `name` is such as "rank 2".
Verdict judge_rank(const std::string& name, int status, bool ended_by_launcher, const BoardSlot& slot);

/// Of two verdicts the one that caused the other; without a failure, that of an interrupt.
Verdict earlier(const Verdict& a, const Verdict& b);

/// The verdict on a run from that of its first failure. After an interrupt, a rank that a signal ended before
/// it could save is no failure.
Verdict conclude(const Verdict& first, bool interrupted);

}  // namespace lorikeet::comm
