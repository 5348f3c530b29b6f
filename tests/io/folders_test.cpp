#include "io/folders.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <utility>

#include "base/atomic_file.h"
#include "support.h"
#include "support/captured_stderr.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::io;
using Catch::Contains;
using test::error_text;
namespace fs = std::filesystem;

namespace {

std::function<void()> g_before_flock;  // is called once

}  // namespace

extern "C" int flock(int fd, int operation) noexcept {
  if (const auto hook = std::exchange(g_before_flock, nullptr)) hook();
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

namespace {

void write_step(const fs::path& folder, const std::string& text) {
  AtomicFolder step(folder);
  write_file_atomic(step.path() / "state", text);
  fs::create_directory(step.path() / "inner");
  write_file_atomic(step.path() / "inner/more", text);
  step.commit();
}

std::size_t count(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

// How tests/support/fault_injection.cpp is driven.
using Fault = std::vector<std::pair<const char*, std::string>>;

// Writes `folder`/step_1 in a process of its own that meets the fault. Its status, as waitpid reports it.
int write_in_child(const fs::path& folder, const std::string& text, const Fault& fault) {
  const pid_t pid = fork();
  if (pid == 0) {
    setenv("LORIKEET_FAULT_ROOTS", folder.c_str(), 1);
    for (const auto& [name, value] : fault) setenv(name, value.c_str(), 1);
    try {
      write_step(folder / "step_1", text);
      _exit(0);
    } catch (const std::exception&) {
      _exit(1);
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

// How many file calls it takes to replace step_1.
int calls_to_replace(Fault fault) {
  const test::TemporaryFolder folder, logs;
  write_step(folder / "step_1", "old");
  fault.emplace_back("LORIKEET_FAULT_LOG", (logs / "calls").string());
  REQUIRE(write_in_child(folder.path(), "new", fault) == 0);
  const std::string calls = read_file(logs / "calls");
  return static_cast<int>(std::count(calls.begin(), calls.end(), '\n'));
}

void require_one_whole_folder(const fs::path& folder) {
  const std::string state = read_file(folder / "step_1/state");
  REQUIRE((state == "old" || state == "new"));
  REQUIRE(read_file(folder / "step_1/inner/more") == state);
  REQUIRE(has_own_marker(folder / "step_1"));
}

const Fault kNoFault;
const Fault kNoExchange{{"LORIKEET_FAULT_NO_EXCHANGE", "1"}};  // as on NFS

}  // namespace

TEST_CASE("a folder appears whole at its commit and not before") {
  const test::TemporaryFolder folder;
  const fs::path target = folder / "checkpoints/step_1";
  {
    AtomicFolder step(target);
    write_file_atomic(step.path() / "state", "1");
    CHECK_FALSE(fs::exists(target));
    step.commit();
  }
  CHECK(read_file(target / "state") == "1");
  CHECK(has_own_marker(target));
  CHECK(count(target.parent_path()) == 1);
}

TEST_CASE("a folder given up leaves nothing, and the old one as it was") {
  const test::TemporaryFolder folder;
  write_step(folder / "step_1", "old");
  {
    AtomicFolder step(folder / "step_1");
    write_file_atomic(step.path() / "state", "new");
  }
  CHECK(read_file(folder / "step_1/state") == "old");
  CHECK(count(folder.path()) == 1);
}

TEST_CASE("a commit replaces a folder of ours and refuses to touch another") {
  const test::TemporaryFolder folder;
  write_step(folder / "step_1", "old");
  write_step(folder / "step_1", "new");
  CHECK(read_file(folder / "step_1/state") == "new");
  CHECK(count(folder.path()) == 1);

  fs::create_directory(folder / "step_2");
  write_file_atomic(folder / "step_2/precious", "x");
  CHECK_THAT(error_text([&] { AtomicFolder(folder / "step_2"); }), Contains("left alone"));
  CHECK(read_file(folder / "step_2/precious") == "x");

  AtomicFolder late(folder / "step_3");
  fs::create_directory(folder / "step_3");
  CHECK_THAT(error_text([&] { late.commit(); }), Contains("appeared meanwhile"));
  CHECK(fs::exists(folder / "step_3"));
}

TEST_CASE("only folders named step_<n> that hold our marker are removed") {
  const test::TemporaryFolder folder;
  write_step(folder / "step_12", "x");
  remove_own_folder(folder / "step_12");
  CHECK(count(folder.path()) == 0);

  const auto remove_error = [&](const std::string& name) {
    return error_text([&] { remove_own_folder(folder / name); }, ErrorKind::kRunFailed);
  };
  for (const char* name : {"step_", "step_x", "step_1x", "step_01", "steps_1", "best"}) {
    write_step(folder / name, "x");
    INFO(name);
    CHECK_THAT(remove_error(name), Contains("is not removed"));
    CHECK(fs::exists(folder / name));
  }
  fs::create_directory(folder / "step_5");
  CHECK_THAT(remove_error("step_5"), Contains("is not removed"));
  write_file_atomic(folder / "step_5" / kMarkerFile, "{}");
  CHECK_THAT(remove_error("step_5"), Contains("is not removed"));
  CHECK_THAT(remove_error("step_6"), Contains("is not removed"));
}

TEST_CASE("removal follows no link, neither the folder itself nor one inside it") {
  const test::TemporaryFolder folder;
  fs::create_directory(folder / "home");
  write_file_atomic(folder / "home/precious", "x");
  write_step(folder / "home/step_9", "x");

  fs::create_symlink("home/step_9", folder / "step_1");
  CHECK_THAT(error_text([&] { remove_own_folder(folder / "step_1"); }, ErrorKind::kRunFailed),
             Contains("is not removed"));
  CHECK(fs::exists(folder / "home/step_9/state"));

  write_step(folder / "step_2", "x");
  fs::create_symlink("../home", folder / "step_2/link");
  fs::create_symlink("../../home/precious", folder / "step_2/inner/file");
  remove_own_folder(folder / "step_2");
  CHECK_FALSE(fs::exists(folder / "step_2"));
  CHECK(read_file(folder / "home/precious") == "x");

  // A marker that is a link to a real one makes no folder ours, not even one whose path is as long as a
  // marker.
  fs::create_directory(folder / "step_3");
  std::string target = "../home/step_9/" + std::string(kMarkerFile);
  const std::size_t length = fs::file_size(folder / "home/step_9" / kMarkerFile);
  REQUIRE(target.size() < length);
  target.insert(2, length - target.size(), '/');
  fs::create_symlink(target, folder / "step_3" / kMarkerFile);
  REQUIRE(fs::exists(folder / "step_3" / kMarkerFile));
  CHECK_FALSE(has_own_marker(folder / "step_3"));
}

TEST_CASE("what killed writers left is removed, what lives or isn't ours stays") {
  const test::TemporaryFolder folder;
  write_step(folder / "kept", "x");
  const auto left = [&](const std::string& name) { return folder / (name + ".tmp-0123456789abcdef"); };
  fs::copy(folder / "kept", left("step_1"), fs::copy_options::recursive);
  fs::copy(folder / "kept", folder / "step_2.tmp-4711", fs::copy_options::recursive);  // an older version's
  fs::create_directory(left("step_3"));
  write_file_atomic(left("step_3") / "precious", "x");
  fs::create_directory(left("step_4"));
  fs::create_directory(folder / "step_5.tmp-x");
  fs::create_symlink("kept", left("step_6"));
  fs::create_directory(left("step_7"));  // killed while it wrote its marker
  write_file_atomic(left("step_7") / (std::string(kMarkerFile) + ".tmp-4711"), "{");
  const AtomicFolder living(folder / "step_8");
  const auto removed = recover_folders(folder.path());
  CHECK(removed.size() == 4);
  CHECK_FALSE(fs::exists(left("step_1")));
  CHECK_FALSE(fs::exists(folder / "step_2.tmp-4711"));
  CHECK_FALSE(fs::exists(left("step_4")));
  CHECK_FALSE(fs::exists(left("step_7")));
  CHECK(fs::exists(left("step_3") / "precious"));
  CHECK(fs::exists(living.path() / kMarkerFile));
  CHECK(fs::exists(folder / "kept/state"));
  CHECK(count(folder.path()) == 5);
}

TEST_CASE("what a killed writer left is no hindrance to the next one of the same folder, and goes") {
  const test::TemporaryFolder folder;
  // As left by the older version, which named its folder by its process id: in containers ids recur.
  const fs::path left = folder / ("step_1.tmp-" + std::to_string(getpid()));
  fs::create_directory(left);
  write_file_atomic(left / (std::string(kMarkerFile) + ".tmp-" + std::to_string(getpid())), "{");
  write_step(folder / "step_1", "x");
  CHECK(read_file(folder / "step_1/state") == "x");
  CHECK(count(folder.path()) == 1);
}

TEST_CASE("temporary files of our own names are removed, others and links stay") {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / "run.json", "x");
  const std::string ending = ".tmp-0123456789abcdef";
  for (const std::string& name : {"run.json" + ending, std::string("run.json.tmp-4711"), "notes.txt" + ending,
                                  std::string(".lorikeet-probe-a1B2c3"), std::string(".lorikeet-probe-")})
    write_file_atomic(folder / name, "x");
  fs::create_symlink("run.json", folder / ("config.yaml" + ending));
  const auto removed = remove_stale_files(
      folder.path(), [](const std::string& name) { return name == "run.json" || name == "config.yaml"; });
  CHECK(removed.size() == 3);
  CHECK(fs::exists(folder / "run.json"));
  CHECK(fs::exists(folder / ("notes.txt" + ending)));
  CHECK(fs::exists(folder / ".lorikeet-probe-"));
  CHECK(fs::is_symlink(folder / ("config.yaml" + ending)));
  CHECK(count(folder.path()) == 4);
}

TEST_CASE("a writer killed at any moment leaves the old folder or the whole new one") {
  const test::TemporaryFolder folder;
  const std::string old_text(1000, 'o');
  const std::string new_text(1000, 'n');
  for (int delay = 0; delay < 25; ++delay) {
    write_step(folder / "step_1", old_text);
    const pid_t pid = fork();
    if (pid == 0) {
      while (true) write_step(folder / "step_1", new_text);
    }
    usleep(static_cast<useconds_t>(500 + 211 * delay));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    const std::string state = read_file(folder / "step_1/state");
    REQUIRE((state == old_text || state == new_text));
    REQUIRE(read_file(folder / "step_1/inner/more") == state);
    REQUIRE(has_own_marker(folder / "step_1"));
    recover_folders(folder.path());
    REQUIRE(fs::exists(folder / "step_1"));
  }
}

TEST_CASE("a writer killed at any of its file calls leaves the old folder or the whole new one") {
  const test::CapturedStderr warnings;
  const auto by_next_writer = [](const fs::path& folder) { AtomicFolder(folder / "step_1"); };
  const auto by_next_start = [](const fs::path& folder) { recover_folders(folder); };
  using Recovery = std::function<void(const fs::path&)>;
  const std::vector<std::pair<Fault, Recovery>> ways{
      {kNoFault, by_next_start}, {kNoExchange, by_next_start}, {kNoExchange, by_next_writer}};
  for (const auto& [fault, recover] : ways) {
    const int calls = calls_to_replace(fault);
    REQUIRE(calls > 20);
    for (int call = 1; call <= calls; ++call) {
      INFO("call " << call << " of " << calls);
      const test::TemporaryFolder folder;
      write_step(folder / "step_1", "old");
      Fault killed = fault;
      killed.insert(killed.end(),
                    {{"LORIKEET_FAULT_AT", std::to_string(call)}, {"LORIKEET_FAULT_HOW", "kill"}});
      REQUIRE(WTERMSIG(write_in_child(folder.path(), "new", killed)) == SIGKILL);
      if (fault.empty()) require_one_whole_folder(folder.path());
      recover(folder.path());
      require_one_whole_folder(folder.path());
      REQUIRE(count(folder.path()) == 1);
    }
  }
}

TEST_CASE(
    "a writer of which the system refuses any one file call leaves the old folder or the whole new one") {
  const test::CapturedStderr warnings;
  for (const Fault& fault : {kNoFault, kNoExchange}) {
    const int calls = calls_to_replace(fault);
    for (int call = 1; call <= calls; ++call) {
      INFO("call " << call << " of " << calls);
      const test::TemporaryFolder folder;
      write_step(folder / "step_1", "old");
      Fault refused = fault;
      refused.insert(refused.end(),
                     {{"LORIKEET_FAULT_AT", std::to_string(call)}, {"LORIKEET_FAULT_HOW", "refused"}});
      const int status = write_in_child(folder.path(), "new", refused);
      REQUIRE(WIFEXITED(status));
      require_one_whole_folder(folder.path());
      if (WEXITSTATUS(status) == 0) REQUIRE(read_file(folder / "step_1/state") == "new");
      recover_folders(folder.path());
      REQUIRE(count(folder.path()) == 1);
    }
  }
}

TEST_CASE("a writer of a new folder of which the system refuses any one file call leaves nothing temporary") {
  const int calls = calls_to_replace(kNoFault);  // a new folder takes fewer
  for (int call = 1; call <= calls; ++call) {
    INFO("call " << call);
    const test::TemporaryFolder folder;
    const int status =
        write_in_child(folder.path(), "new",
                       {{"LORIKEET_FAULT_AT", std::to_string(call)}, {"LORIKEET_FAULT_HOW", "refused"}});
    REQUIRE(WIFEXITED(status));
    for (const auto& entry : fs::directory_iterator(folder.path()))
      CHECK(entry.path().filename() == "step_1");
  }
}

TEST_CASE("a folder that a killed commit had set aside gets its name back where no folder has it") {
  const test::TemporaryFolder folder;
  const auto set_aside = [&](const std::string& name) {
    write_step(folder / "old", "old");
    const fs::path aside = folder / (name + ".tmp-0123456789abcdef-old");
    fs::rename(folder / "old", aside);
    return aside;
  };
  const fs::path first = set_aside("step_1");
  {
    const UniqueFd living(::open(first.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    REQUIRE(::flock(living.get(), LOCK_EX) == 0);
    CHECK(recover_folders(folder.path()).empty());
    CHECK(fs::exists(first));
  }
  write_step(folder / "step_2", "new");
  set_aside("step_2");
  CHECK(recover_folders(folder.path()).size() == 1);
  CHECK(read_file(folder / "step_1/state") == "old");
  CHECK(read_file(folder / "step_2/state") == "new");
  CHECK(count(folder.path()) == 2);

  const fs::path other = set_aside("step_3");
  fs::remove(other / kMarkerFile);
  CHECK(recover_folders(folder.path()).empty());
  CHECK(fs::exists(other));
}

TEST_CASE("a lock on a file that its run has removed keeps nobody out, and so is none") {
  const test::TemporaryFolder folder;
  std::optional<FolderLock> first(folder.path()), third;
  g_before_flock = [&] {
    first->remove();
    first.reset();
    third.emplace(folder.path());
  };
  CHECK_THAT(error_text([&] { FolderLock(folder.path()); }), Contains("another process is writing"));
  CHECK(third->is_in_place());

  std::optional<FolderLock> last;
  g_before_flock = [&] {
    third->remove();
    third.reset();
  };
  last.emplace(folder.path());
  CHECK(last->is_in_place());
  CHECK_THAT(error_text([&] { FolderLock(folder.path()); }), Contains("another process is writing"));
}

TEST_CASE("a run removes no other run's lock") {
  const test::TemporaryFolder folder;
  FolderLock lost(folder.path());
  fs::remove(folder / kLockFile);
  const FolderLock other(folder.path());
  lost.remove();
  CHECK(other.is_in_place());
}

TEST_CASE("a folder is locked against a second run until the first ends") {
  const test::TemporaryFolder folder;
  {
    const FolderLock lock(folder.path());
    CHECK_THAT(error_text([&] { FolderLock(folder.path()); }), Contains("another process is writing"));
  }
  CHECK_NOTHROW(FolderLock(folder.path()));
}

TEST_CASE("a file written in pieces appears at its commit, and one given up leaves nothing") {
  const test::TemporaryFolder folder;
  {
    AtomicFile file(folder / "a");
    file.write("12");
    file.write("34");
    CHECK_FALSE(fs::exists(folder / "a"));
    file.commit();
  }
  CHECK(read_file(folder / "a") == "1234");
  { AtomicFile(folder / "a").write("5"); }
  CHECK(read_file(folder / "a") == "1234");
  CHECK(count(folder.path()) == 1);
}

TEST_CASE("a write that the system refuses is an error of the environment and leaves nothing behind") {
  const test::TemporaryFolder folder;
  const pid_t pid = fork();
  if (pid == 0) {
    // A file size limit stands in for a full disk: the same path through write().
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      AtomicFile file(folder / "a");
      file.write(std::string(10000, 'x'));
      _exit(1);
    } catch (const Error& error) {
      _exit(error.exit_code());
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK(WEXITSTATUS(status) == 3);
  CHECK(count(folder.path()) == 0);
}
