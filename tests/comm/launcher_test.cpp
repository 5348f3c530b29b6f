#include "comm/launcher.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "base/file.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using comm::launch;
using std::filesystem::exists;
using test::TemporaryFolder;

namespace {

comm::LaunchOptions shell(const std::string& script, int processes) {
  return {.program = "/bin/sh", .arguments = {"-c", script}, .processes = processes, .grace_seconds = 1};
}

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A launcher of two ranks in a process of its own.
struct Forked {
  pid_t pid = fork();
  explicit Forked(const std::string& script) {
    if (pid == 0) _exit(launch(shell(script, 2)));
  }
};

bool wait_until(const std::function<bool()>& condition) {
  for (int i = 0; i < 400; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace

TEST_CASE("ranks get the launcher's environment, but for what says who a rank is") {
  const TemporaryFolder folder;
  setenv("LORIKEET_REFERENCE_OPS", "1", 1);
  setenv("LORIKEET_STORE_PORT", "none", 1);
  CHECK(launch(shell("echo $LORIKEET_REFERENCE_OPS $LORIKEET_STORE_PORT > " + folder.path().string() +
                         "/$LORIKEET_RANK",
                     1)) == 0);
  unsetenv("LORIKEET_REFERENCE_OPS");
  unsetenv("LORIKEET_STORE_PORT");
  const std::string text = read_file(folder / "0");
  CHECK(text.starts_with("1 "));
  CHECK(std::stoi(text.substr(2)) > 0);
}

TEST_CASE("every rank is told who it is") {
  const TemporaryFolder folder;
  const std::string script =
      "echo $LORIKEET_RANK $LORIKEET_WORLD_SIZE $NCCL_SOCKET_IFNAME $LORIKEET_STORE_PORT > " +
      folder.path().string() + "/$LORIKEET_RANK";
  CHECK(launch(shell(script, 3)) == 0);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text = read_file(folder / std::to_string(rank));
    CHECK(text.starts_with(std::to_string(rank) + " 3 lo "));
    CHECK(std::stoi(text.substr(7)) > 0);
  }
}

TEST_CASE("a rank that fails ends the others, and its exit code is the run's") {
  int code = -1;
  const double seconds = seconds_of(
      [&] { code = launch(shell("if [ $LORIKEET_RANK = 1 ]; then exit 3; fi; exec sleep 60", 3)); });
  CHECK(code == 3);
  CHECK(seconds < 10);
}

TEST_CASE("a rank that is killed ends the others, even those that ignore SIGTERM") {
  int code = -1;
  const double seconds = seconds_of([&] {
    code = launch(
        shell("trap '' TERM; if [ $LORIKEET_RANK = 2 ]; then kill -9 $$; fi; while :; do sleep 1; done", 3));
  });
  CHECK(code == 1);
  CHECK(seconds < 10);
}

TEST_CASE("an interrupt is passed on, and ranks that obey it make exit code 130") {
  const TemporaryFolder folder;
  Forked launcher("trap 'exit 130' TERM; touch " + folder.path().string() +
                  "/$LORIKEET_RANK; while :; do sleep 0.1; done");
  REQUIRE(wait_until([&] { return exists(folder / "0") && exists(folder / "1"); }));
  kill(launcher.pid, SIGTERM);
  int status = 0;
  waitpid(launcher.pid, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
}

TEST_CASE("no rank outlives a launcher that is killed") {
  const TemporaryFolder folder;
  Forked launcher("echo $$ > " + folder.path().string() + "/$LORIKEET_RANK; exec sleep 60");
  const auto pid_of = [&](const char* rank) { return std::stoi("0" + read_file(folder / rank)); };
  REQUIRE(wait_until(
      [&] { return exists(folder / "0") && exists(folder / "1") && pid_of("0") > 0 && pid_of("1") > 0; }));
  kill(launcher.pid, SIGKILL);
  waitpid(launcher.pid, nullptr, 0);
  CHECK(wait_until([&] { return kill(pid_of("0"), 0) != 0 && kill(pid_of("1"), 0) != 0; }));
}
