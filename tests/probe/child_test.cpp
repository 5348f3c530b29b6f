#include "probe/child.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/file.h"
#include "base/strings.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;
using End = ChildResult::End;

namespace {

ChildCommand shell(const std::string& script) { return {"/bin/sh", {"-c", script}}; }

constexpr double kLong = 60, kShort = 0.5;

}  // namespace

TEST_CASE("a child's output and errors are taken apart") {
  const ChildResult result = run_children({shell("echo out; echo err >&2")}, kLong).at(0);
  CHECK(result.succeeded());
  CHECK(result.output == "out\n");
  CHECK(result.errors == "err\n");
  CHECK(result.trouble(kLong).empty());
}

TEST_CASE("a child that fails is told with its code and its last line") {
  const ChildResult result =
      run_children({shell("echo a >&2; echo 'error: no such GPU' >&2; exit 3")}, kLong).at(0);
  CHECK_FALSE(result.succeeded());
  CHECK(result.trouble(kLong) == "ended with exit code 3: no such GPU");
}

TEST_CASE("a program that isn't there is a failure") {
  CHECK(run_children({{"/nowhere/at/all", {}}}, kLong).at(0).trouble(kLong) == "ended with exit code 127");
}

TEST_CASE("a child that crashes is told with its signal") {
  const ChildResult result = run_children({shell("echo before >&2; kill -SEGV $$")}, kLong).at(0);
  CHECK(result.end == End::kSignalled);
  CHECK_THAT(result.trouble(kLong),
             Contains("was killed by signal 11 (Segmentation fault)") && Contains("before"));
}

TEST_CASE("a child that hangs is killed at the limit, and its last words are told") {
  const ChildResult result = run_children({shell("echo copying from 0 to 1 >&2; sleep 600")}, kShort).at(0);
  CHECK(result.end == End::kTimedOut);
  CHECK(result.trouble(kShort) == "did not end within 0.5 s; its last words: copying from 0 to 1");
}

TEST_CASE("a child that is stopped, or ignores signals, ends at the limit too") {
  for (const char* script : {"kill -STOP $$; echo alive", "trap '' TERM INT HUP; while :; do sleep 1; done"})
    CHECK(run_children({shell(script)}, kShort).at(0).end == End::kTimedOut);
}

TEST_CASE("what a child leaves running keeps nobody waiting and is killed") {
  // The grandchild holds the pipes open.
  const ChildResult result = run_children({shell("sleep 600 & echo $!")}, kLong).at(0);
  REQUIRE(result.succeeded());
  const int grandchild = std::stoi(result.output);
  const auto gone = [&] {
    std::string state = "Z";
    try {
      const std::string stat = read_file("/proc/" + std::to_string(grandchild) + "/stat");
      state = stat.substr(stat.rfind(')') + 2, 1);
    } catch (const std::exception&) {
    }
    return state == "Z" || state == "X";
  };
  for (int i = 0; i < 500 && !gone(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(gone());
}

TEST_CASE("output without end is cut, and ends at the limit") {
  const ChildResult result =
      run_children({shell("while :; do echo yyyyyyyyyyyyyyyyyyyy; done")}, kShort).at(0);
  CHECK(result.end == End::kTimedOut);
  CHECK(result.output.size() <= std::size_t{1} << 20);
}

TEST_CASE("of errors the end is kept") {
  const ChildResult result =
      run_children({shell("head -c 100000 /dev/zero >&2; echo end >&2; exit 1")}, kLong).at(0);
  CHECK(result.errors.size() == 4096);
  CHECK(result.errors.ends_with("end\n"));
}

TEST_CASE("once one child fails, the others are stopped") {
  const auto results = run_children({shell("sleep 600"), shell("exit 1"), shell("sleep 600")}, kLong);
  CHECK(results.at(0).end == End::kStopped);
  CHECK(results.at(1).trouble(kLong) == "ended with exit code 1");
  CHECK(results.at(2).trouble(kLong) == "was stopped because another one had failed");
}

TEST_CASE("children run at the same time") {
  const test::TemporaryFolder folder;
  const std::string fifo = (folder / "fifo").string();
  const auto results = run_children({shell("until [ -p " + fifo + " ]; do sleep 0.01; done; cat " + fifo),
                                     shell("mkfifo " + fifo + "; echo met > " + fifo)},
                                    kLong);
  CHECK(results.at(0).output == "met\n");
}

TEST_CASE("a child has the descriptor that it is to inherit and no other") {
  const UniqueFd kept(::dup(2)), other(::dup(2));
  const std::string list = "for f in " + std::to_string(kept.get()) + " " + std::to_string(other.get()) +
                           "; do [ -e /proc/$$/fd/$f ] && echo $f; done; true";
  ::fcntl(kept.get(), F_SETFD, FD_CLOEXEC);
  ::fcntl(other.get(), F_SETFD, FD_CLOEXEC);
  ChildCommand command = shell(list);
  command.inherited_fd = kept.get();
  CHECK(run_children({command}, kLong).at(0).output == std::to_string(kept.get()) + "\n");
}
