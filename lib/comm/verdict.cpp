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

Verdict judge_rank(const std::string& name, int status, bool ended_by_launcher, const BoardSlot& slot) {
  const bool ended = WIFEXITED(status);
  if (ended && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kInterrupted)) {
    return {.code = WEXITSTATUS(status)};
  }
  const bool reported = slot.error[0] != '\0';
  // It was about to end with its error when the launcher's signal came.
  const bool leaving = !ended && ended_by_launcher && reported;
  Verdict verdict{.cause = Cause::kConsequence,
                  .code = ended ? WEXITSTATUS(status) : (leaving ? slot.exit_code : 1)};
  if (reported && slot.consequence == 0) verdict.cause = ended ? Cause::kOwnError : Cause::kOwnSignal;
  if (ended && !reported) verdict.cause = Cause::kOwnError;
  if (!ended && !ended_by_launcher) verdict.cause = Cause::kOutside;
  const std::string phase = escape_control(slot.phase);
  verdict.text = "[launch] " + name + " " + (leaving ? "failed" : describe(status)) +
                 (phase.empty() ? std::string() : " in phase '" + phase + "'") +
                 (reported ? ": " + escape_control(slot.error) : std::string()) +
                 "; the other ranks were ended";
  return verdict;
}

Verdict earlier(const Verdict& a, const Verdict& b) {
  if (a.cause != b.cause) return a.cause < b.cause ? a : b;
  return a.cause == Cause::kNone && b.code == kInterrupted ? b : a;
}

Verdict conclude(const Verdict& first, bool interrupted) {
  if (interrupted && first.cause == Cause::kConsequence) return {.code = kInterrupted};
  return first;
}

}  // namespace lorikeet::comm
