#include "train/metrics.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "support/captured_stderr.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::train;
using Catch::Contains;

namespace {

Json line(std::int64_t step) { return Json().set("step", step); }

}  // namespace

TEST_CASE("lines are appended whole") {
  const test::TemporaryFolder folder;
  MetricsWriter writer(folder / "metrics.jsonl", 0);
  writer.write(line(1));
  writer.write(line(2));
  CHECK(read_file(folder / "metrics.jsonl") == "{\"step\":1}\n{\"step\":2}\n");
}

TEST_CASE("a resumed run keeps the lines up to its step and drops later ones") {
  const test::TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  {
    MetricsWriter writer(path, 0);
    for (std::int64_t step = 1; step <= 4; ++step) writer.write(line(step));
    writer.write(line(2).set("val_loss", 0.5));
  }
  MetricsWriter writer(path, 2);
  CHECK(read_file(path) == "{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"val_loss\":0.5}\n");
  writer.write(line(3));
  CHECK(read_file(path).ends_with("\n{\"step\":3}\n"));
}

TEST_CASE("a fresh run drops all lines of an earlier one") {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / "metrics.jsonl", "{\"step\":1}\n");
  const MetricsWriter writer(folder / "metrics.jsonl", 0);
  CHECK(read_file(folder / "metrics.jsonl").empty());
}

TEST_CASE("a line cut by a crash is dropped, and a damaged one, but none of those after it") {
  const test::TemporaryFolder folder;
  const auto kept = [&](const std::string& text) {
    write_file_atomic(folder / "metrics.jsonl", text);
    const MetricsWriter writer(folder / "metrics.jsonl", 10);
    return read_file(folder / "metrics.jsonl");
  };
  CHECK(kept("{\"step\":1}\n{\"step\":2}") == "{\"step\":1}\n");
  CHECK(kept("{\"step\":1}\n{\"step\":2,\"lo") == "{\"step\":1}\n");
  CHECK(kept("{\"step\":1}\n{\"st\n{\"step\":3}\n") == "{\"step\":1}\n{\"step\":3}\n");
  CHECK(kept("{\"step\":1}\n[2]\n{\"loss\":3}\n{\"step\":3}\n") == "{\"step\":1}\n{\"step\":3}\n");
}

TEST_CASE("the line of a validation that is pending is dropped, those before it stay") {
  const test::TemporaryFolder folder;
  const std::string one = "{\"step\":1,\"loss\":3}\n{\"step\":1,\"val_loss\":2}\n{\"step\":2,\"loss\":3}\n";
  write_file_atomic(folder / "metrics.jsonl", one + "{\"step\":2,\"val_loss\":2}\n");
  const MetricsWriter writer(folder / "metrics.jsonl", 2, /*validation_pending=*/true);
  CHECK(read_file(folder / "metrics.jsonl") == one);
}

TEST_CASE("damaged lines and steps that have no line are warned of") {
  const test::TemporaryFolder folder;
  const auto warnings = [&](const std::string& text, std::int64_t steps) {
    write_file_atomic(folder / "metrics.jsonl", text);
    const test::CapturedStderr captured;
    const MetricsWriter writer(folder / "metrics.jsonl", steps);
    return captured.text();
  };
  const auto step = [](int number) { return "{\"step\":" + std::to_string(number) + ",\"loss\":1}\n"; };
  CHECK(warnings(step(1) + step(2) + "{\"step\":2,\"val_loss\":1}\n", 2).empty());
  CHECK(warnings("x\n", 0).empty());
  CHECK_THAT(warnings("", 3), Contains("no lines of steps 1 to 3,"));
  CHECK_THAT(warnings(step(2) + "{\"step\":3,\"val_loss\":1}\n" + step(4), 6),
             Contains("no lines of steps 1, 3, 5 to 6,"));
  CHECK_THAT(warnings(step(1) + "x\n" + std::string(3, '\0') + "\n" + step(2), 2),
             Contains("dropped lines 2, 3") && !Contains("no lines of"));
}

TEST_CASE("a deleted metrics file begins anew, one whose folder is gone ends the run") {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "run");
  MetricsWriter writer(folder / "run/metrics.jsonl", 0);
  writer.write(line(1));
  std::filesystem::remove(folder / "run/metrics.jsonl");
  writer.write(line(2));
  CHECK(read_file(folder / "run/metrics.jsonl") == "{\"step\":2}\n");
  std::filesystem::remove_all(folder / "run");
  CHECK_THAT(test::error_text([&] { writer.write(line(3)); }, ErrorKind::kRunFailed),
             Contains("was deleted"));
}

TEST_CASE("a line that the disk has no room for leaves no part behind, and tells the reason") {
  const test::TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  const pid_t pid = fork();
  if (pid == 0) {  // a limit on file sizes stands in for a full disk, and cuts a write short as that does
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20, 20};
    try {
      MetricsWriter writer(path, 0);
      writer.write(line(1));
      setrlimit(RLIMIT_FSIZE, &limit);
      writer.write(line(2).set("text", "long"));
      _exit(1);
    } catch (const Error& error) {
      const bool reported = std::string(error.what()).find("File too large") != std::string::npos;
      _exit(reported ? error.exit_code() : 1);
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK(WEXITSTATUS(status) == 3);
  CHECK(read_file(path) == "{\"step\":1}\n");
}

TEST_CASE("a step's line holds its rates, and mfu where the device's rate is known") {
  StepMetrics m{.step = 3, .loss = 1.5, .tokens = 600, .step_seconds = 2, .flops = 8e12, .devices = 2};
  Json json = m.json();
  CHECK(json.find("tokens_per_second")->number() == 300);
  CHECK(json.find("tokens_per_second_per_device")->number() == 150);
  CHECK(json.find("tflops_per_device")->number() == Approx(2));
  CHECK(json.find("mfu")->is_null());
  m.peak_flops = 8e12;
  CHECK(m.json().find("mfu")->number() == Approx(0.25));

  std::vector<std::string> keys;
  for (const auto& [key, value] : json.object()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"step",
                                         "epoch",
                                         "loss",
                                         "grad_norm",
                                         "lr",
                                         "examples",
                                         "tokens",
                                         "label_tokens",
                                         "step_seconds",
                                         "data_seconds",
                                         "comm_seconds",
                                         "tokens_per_second",
                                         "tokens_per_second_per_device",
                                         "tflops_per_device",
                                         "mfu",
                                         "memory_peak_bytes",
                                         "elapsed_seconds",
                                         "comm_share",
                                         "comm_bytes",
                                         "comm_bytes_by_collective",
                                         "slowest_rank_seconds",
                                         "fastest_rank_seconds"});
}

TEST_CASE("a step that took no measurable time has no rate") {
  CHECK(StepMetrics{.tokens = 5}.json().find("tokens_per_second")->number() == 0);
}
