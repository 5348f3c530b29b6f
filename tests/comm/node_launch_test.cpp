#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <thread>

#include "base/file.h"
#include "comm/launcher.h"
#include "nodes.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using std::filesystem::exists;
using test::TemporaryFolder;

namespace {

// Launchers of two nodes, each in a process of its own, whose ranks run a shell script.
class TwoNodes {
 public:
  TwoNodes(const std::string& script, int processes_0, int processes_1) {
    const int port = test::free_port();
    for (const int node : {0, 1}) {
      pids_[node] = fork();
      if (pids_[node] != 0) continue;
      // Between fork and exec ranks have the test program's handlers.
      for (const int number : {SIGTERM, SIGINT}) std::signal(number, SIG_DFL);
      int code = 99;
      try {
        code = comm::launch({.program = "/bin/sh",
                             .arguments = {"-c", script},
                             .processes = node == 0 ? processes_0 : processes_1,
                             .nodes = test::node_options(node, 2, port),
                             .grace_seconds = 1});
      } catch (const std::exception&) {
      }
      _exit(code);
    }
  }
  ~TwoNodes() {
    for (const auto& [node, pid] : pids_) {
      if (pid > 0 && ends_.count(node) == 0) kill(pid, SIGKILL);
    }
  }

  void send(int node, int signal) { kill(pids_[node], signal); }
  /// The exit code, or minus the signal; waits.
  int end(int node) {
    if (ends_.count(node) == 0) {
      int status = 0;
      waitpid(pids_[node], &status, 0);
      ends_[node] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return ends_[node];
  }

 private:
  std::map<int, pid_t> pids_;
  std::map<int, int> ends_;
};

bool wait_until(const std::function<bool()>& condition) {
  for (int i = 0; i < 400; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Each rank leaves its process id in a file named as the rank.
std::string leave_pid(const TemporaryFolder& folder) {
  const std::string path = folder.path().string() + "/$LORIKEET_RANK";
  return "echo $$ > " + path + ".new; mv " + path + ".new " + path + "; ";
}
int pid_of(const TemporaryFolder& folder, int rank) {
  return std::stoi(read_file(folder / std::to_string(rank)));
}

bool all_there(const TemporaryFolder& folder, int ranks) {
  return wait_until([&] {
    for (int rank = 0; rank < ranks; ++rank) {
      if (!exists(folder / std::to_string(rank))) return false;
    }
    return true;
  });
}

bool none_runs(const std::vector<int>& pids) {
  return wait_until(
      [&] { return std::none_of(pids.begin(), pids.end(), [](int pid) { return kill(pid, 0) == 0; }); });
}

}  // namespace

TEST_CASE("ranks are numbered node after node, and know nothing of the secret") {
  const TemporaryFolder folder;
  setenv("LORIKEET_SECRET", test::kSecret.c_str(), 1);
  TwoNodes nodes(
      "echo $LORIKEET_RANK $LORIKEET_WORLD_SIZE $LORIKEET_LOCAL_RANK $LORIKEET_LOCAL_SIZE "
      "$LORIKEET_NODE $LORIKEET_NODES ${LORIKEET_SECRET:-none} ${NCCL_SOCKET_IFNAME:-any} "
      "$LORIKEET_RENDEZVOUS > " +
          folder.path().string() + "/$LORIKEET_RANK",
      1, 2);
  unsetenv("LORIKEET_SECRET");
  CHECK(nodes.end(0) == 0);
  CHECK(nodes.end(1) == 0);
  const auto text = [&](const char* rank) { return read_file(folder / rank); };
  CHECK(text("0").starts_with("0 3 0 1 0 2 none any 127.0.0.1:"));
  CHECK(text("1").starts_with("1 3 0 2 1 2 none any 127.0.0.1:"));
  CHECK(text("2").starts_with("2 3 1 2 1 2 none any 127.0.0.1:"));
  CHECK(text("0").substr(text("0").rfind(':')) == text("2").substr(text("2").rfind(':')));
}

TEST_CASE("a rank that fails ends the ranks of all nodes, and all launchers with its exit code") {
  for (const std::string rank : {"0", "2"}) {
    int codes[2] = {-1, -1};
    const double seconds = seconds_of([&] {
      TwoNodes nodes("if [ $LORIKEET_RANK = " + rank + " ]; then exit 3; fi; exec sleep 60", 1, 2);
      for (const int node : {1, 0}) codes[node] = nodes.end(node);
    });
    CHECK(codes[0] == 3);
    CHECK(codes[1] == 3);
    CHECK(seconds < 10);
  }
}

TEST_CASE("a launcher that is killed ends the ranks of all nodes") {
  for (const int victim : {0, 1}) {
    const TemporaryFolder folder;
    TwoNodes nodes(leave_pid(folder) + "trap '' TERM; while :; do sleep 1; done", 1, 2);
    REQUIRE(all_there(folder, 3));
    const std::vector<int> pids{pid_of(folder, 0), pid_of(folder, 1), pid_of(folder, 2)};
    nodes.send(victim, SIGKILL);
    CHECK(seconds_of([&] { CHECK(nodes.end(1 - victim) == 1); }) < 10);
    CHECK(nodes.end(victim) == -SIGKILL);
    CHECK(none_runs(pids));
  }
}

TEST_CASE("an interrupt of any launcher reaches the ranks of all nodes once, a second one ends them") {
  const TemporaryFolder folder;
  SECTION("they obey") {
    TwoNodes nodes("trap 'exit 130' TERM; " + leave_pid(folder) + "while :; do sleep 0.1; done", 1, 2);
    REQUIRE(all_there(folder, 3));
    nodes.send(1, SIGTERM);
    CHECK(nodes.end(0) == 130);
    CHECK(nodes.end(1) == 130);
  }
  SECTION("they don't") {
    TwoNodes nodes("trap '' TERM; " + leave_pid(folder) + "while :; do sleep 0.1; done", 1, 2);
    REQUIRE(all_there(folder, 3));
    nodes.send(1, SIGTERM);
    nodes.send(0, SIGINT);  // the first to this launcher
    std::this_thread::sleep_for(std::chrono::seconds(1));
    CHECK(kill(pid_of(folder, 0), 0) == 0);
    CHECK(kill(pid_of(folder, 2), 0) == 0);
    nodes.send(1, SIGTERM);
    CHECK(nodes.end(0) == 130);
    CHECK(nodes.end(1) == 130);
  }
}

TEST_CASE("a node whose ranks are done waits for the others") {
  TwoNodes nodes("if [ $LORIKEET_RANK = 0 ]; then sleep 2; fi", 1, 1);
  CHECK(seconds_of([&] { CHECK(nodes.end(1) == 0); }) > 1.5);
  CHECK(nodes.end(0) == 0);
}
