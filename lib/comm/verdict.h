#pragma once

#include <string>

#include "comm/board.h"

namespace lorikeet::comm {

/// How far something that went wrong is from what caused it: of several the lowest is the run's.
enum class Blame {
  kOutside = 0,      ///< killed from outside, or a machine was lost
  kOwnError = 1,     ///< ended with an error of its own
  kOwnSignal = 2,    ///< told an error of its own, then was killed by us
  kConsequence = 3,  ///< failed because of another
  kNone = 4          ///< all is well
};

/// How a rank, a node's ranks, or all have ended.
struct Verdict {
  Blame blame = Blame::kNone;
  int code = 0;      ///< the exit code: 0, 130 after an interrupt that was obeyed, or a failure's
  std::string text;  ///< what failed, for people; empty when all is well
};

/// The verdict on one rank. `status` is waitpid's, `ended_by_us` says that a signal of ours ended it, `name`
/// is such as "rank 2" or "node 1 rank 2".
Verdict judge_rank(const std::string& name, int status, bool ended_by_us, const BoardSlot& slot);

/// Of two verdicts that of what came first; of two good ones that of an interrupt.
Verdict graver(const Verdict& a, const Verdict& b);

/// The verdict on a run from the gravest one. After an interrupt, a rank that a signal reached before it
/// could save is no failure.
Verdict conclude(const Verdict& gravest, bool interrupted);

}  // namespace lorikeet::comm
