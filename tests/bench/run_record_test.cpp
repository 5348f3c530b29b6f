#include "bench/run_record.h"

#include <cmath>

#include "base/file.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::bench;
using Catch::Matchers::Contains;
using test::error_text;

namespace {

constexpr const char* kRun = R"json({"finished": true,
  "identity": {"settings": "model: {path: m}", "data": "d", "model": "b", "policy": "p"},
  "lorikeet_version": "0.1.0", "code": "c", "libtorch_version": "2.11.0",
  "devices": ["cuda:0 (A)", "cuda:1 (A)"], "world_size": 2, "strategy": "replicate", "threads": 4})json";
constexpr const char* kSteps =
    R"({"step": 1, "loss": 2.5, "tokens": 10, "step_seconds": 2, "data_seconds": 0.5, "comm_seconds": 0.25, "memory_peak_bytes": 7}
{"step": 1, "val_loss": 2.0}
{"step": 2, "loss": null, "tokens": 12, "step_seconds": 1, "data_seconds": 0, "comm_seconds": 0, "memory_peak_bytes": 8}
)";

struct Folder {
  explicit Folder(const std::string& run = kRun, const std::string& steps = kSteps) {
    write_file_atomic(folder / "run.json", run);
    write_file_atomic(folder / "metrics.jsonl", steps);
  }
  RunRecord read() const { return read_run(folder.path(), "the run"); }
  test::TemporaryFolder folder;
};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  return text.replace(text.find(what), what.size(), with);
}

}  // namespace

TEST_CASE("a finished run's folder is read: identity, devices and steps without validations") {
  const RunRecord run = Folder().read();
  CHECK(run.policy == "p");
  CHECK(run.code == "c");
  CHECK(run.world_size == 2);
  CHECK(run.threads == 4);
  CHECK(run.devices == std::vector<std::string>{"cuda:0 (A)", "cuda:1 (A)"});
  REQUIRE(run.steps.size() == 2);
  CHECK(run.steps[0].loss == 2.5);
  CHECK(run.steps[0].comm_seconds == 0.25);
  CHECK(std::isnan(run.steps[1].loss));
  CHECK(run.steps[1].memory_peak_bytes == 8);
}

TEST_CASE("what is no finished run is refused in words") {
  const test::TemporaryFolder empty;
  CHECK_THAT(error_text([&] { read_run(empty.path(), "x"); }), Contains("found no run.json in"));
  CHECK_THAT(error_text([] { Folder(replaced(kRun, "true", "false")).read(); }), Contains("is not finished"));
  CHECK_THAT(error_text([] { Folder(R"({"given_up": true})").read(); }), Contains("is not finished"));
  CHECK_THAT(error_text([] { Folder(kRun, "").read(); }), Contains("has made no step"));
  CHECK_THAT(error_text([] { Folder(kRun, replaced(kSteps, "12", "\"x\"")).read(); }),
             Contains("metrics.jsonl:3: tokens"));
  CHECK_THAT(error_text([] { Folder(replaced(kRun, "\"policy\"", "\"other\"")).read(); }),
             Contains("identity] key 'policy' is missing"));
}
