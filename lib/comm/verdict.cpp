#include "comm/verdict.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::comm {
namespace {

constexpr int kInterrupted = static_cast<int>(ErrorKind::kInterrupted);

std::string describe(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const bool memory = number == SIGKILL;
    return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) +
           (memory ? ", which the kernel does when memory runs out)" : ")");
  }
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Verdict judge_rank(const std::string& name, int status, bool ended_by_us, const BoardSlot& slot) {
  const bool ended = WIFEXITED(status);
  if (ended && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kInterrupted)) {
    return {.code = WEXITSTATUS(status)};
  }
  const bool told = slot.error[0] != '\0';
  // One that was on its way out when a signal of ours reached it.
  const bool leaving = !ended && ended_by_us && told;
  Verdict verdict{.blame = Blame::kConsequence,
                  .code = ended ? WEXITSTATUS(status) : (leaving ? slot.exit_code : 1)};
  if (told && slot.consequence == 0) verdict.blame = ended ? Blame::kOwnError : Blame::kOwnSignal;
  if (ended && !told) verdict.blame = Blame::kOwnError;
  if (!ended && !ended_by_us) verdict.blame = Blame::kOutside;
  const std::string phase = escape_control(slot.phase);
  verdict.text = "[launch] " + name + " " + (leaving ? "failed" : describe(status)) +
                 (phase.empty() ? std::string() : " in phase '" + phase + "'") +
                 (told ? ": " + escape_control(slot.error) : std::string()) + "; the other ranks were ended";
  return verdict;
}

Verdict graver(const Verdict& a, const Verdict& b) {
  if (a.blame != b.blame) return a.blame < b.blame ? a : b;
  return a.blame == Blame::kNone && b.code == kInterrupted ? b : a;
}

Verdict conclude(const Verdict& gravest, bool interrupted) {
  if (interrupted && gravest.blame == Blame::kConsequence) return {.code = kInterrupted};
  return gravest;
}

}  // namespace lorikeet::comm
