#include "comm/verdict.h"

#include <csignal>
#include <cstring>

#include "support/catch.h"

using namespace lorikeet::comm;
using Catch::Contains;

namespace {

// As waitpid gives them.
constexpr int exit_with(int code) { return code << 8; }

BoardSlot with_error(const char* error, bool consequence) {
  BoardSlot slot{};
  std::strcpy(slot.phase, "training");
  std::strcpy(slot.error, error);
  slot.consequence = consequence ? 1 : 0;
  slot.exit_code = 3;
  return slot;
}

}  // namespace

TEST_CASE("a rank killed from outside comes before one that failed, and that before one that lost another") {
  const Verdict killed = judge_rank("rank 0", SIGKILL, false, {});
  const Verdict failed = judge_rank("rank 1", exit_with(2), false, with_error("bad", false));
  const Verdict ended = judge_rank("rank 2", SIGTERM, true, with_error("worse", false));
  const Verdict lost = judge_rank("rank 3", exit_with(1), false, with_error("peer lost", true));
  CHECK(killed.cause == Cause::kOutside);
  CHECK(failed.cause == Cause::kOwnError);
  CHECK(ended.cause == Cause::kOwnSignal);
  CHECK(lost.cause == Cause::kConsequence);
  CHECK(earlier(lost, killed).text == killed.text);
  CHECK(earlier(failed, ended).text == failed.text);
  CHECK(earlier(ended, lost).text == ended.text);
  CHECK(failed.code == 2);
  CHECK(ended.code == 3);
  CHECK_THAT(ended.text, Contains("rank 2 failed in phase 'training': worse"));
  CHECK_THAT(failed.text, Contains("rank 1 ended with exit code 2 in phase 'training': bad"));
  CHECK_THAT(killed.text, Contains("rank 0 was killed by signal 9"));
}

TEST_CASE("an interrupt is no failure, nor is one that came before a rank could obey it") {
  const Verdict done = judge_rank("rank 0", exit_with(0), false, {});
  const Verdict saved = judge_rank("rank 1", exit_with(130), false, {});
  const Verdict early = judge_rank("rank 2", SIGTERM, true, {});
  CHECK(earlier(done, saved).code == 130);
  CHECK(earlier(saved, done).code == 130);
  CHECK(earlier(done, done).code == 0);
  CHECK(conclude(earlier(saved, early), true).code == 130);
  CHECK(conclude(earlier(saved, early), true).text.empty());
  CHECK(conclude(early, false).code == 1);
  CHECK(conclude(judge_rank("rank 3", SIGKILL, false, {}), true).code == 1);
}
