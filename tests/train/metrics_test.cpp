#include "train/metrics.h"

#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::train;

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

TEST_CASE("a line cut by a crash is dropped, and all from a damaged one on") {
  const test::TemporaryFolder folder;
  const auto kept = [&](const std::string& text) {
    write_file_atomic(folder / "metrics.jsonl", text);
    const MetricsWriter writer(folder / "metrics.jsonl", 10);
    return read_file(folder / "metrics.jsonl");
  };
  CHECK(kept("{\"step\":1}\n{\"step\":2}") == "{\"step\":1}\n");
  CHECK(kept("{\"step\":1}\n{\"step\":2,\"lo") == "{\"step\":1}\n");
  CHECK(kept("{\"step\":1}\n{\"st\n{\"step\":3}\n") == "{\"step\":1}\n");
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
