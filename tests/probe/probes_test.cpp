#include "probe/probes.h"

#include <algorithm>
#include <filesystem>

#include "probe/active.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;

TEST_CASE("the CPU multiplies right in every dtype of a policy, at some rate") {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const ProbeAnswer answer = probe::answer({.kind = ProbeKind::kMatmul, .compute = dtype});
    INFO(dtype_name(dtype));
    CHECK(answer.wrong.empty());
    CHECK(answer.figure("gflops_per_second") > 0);
    const double native = answer.figure("native_gflops_per_second"),
                 widened = answer.figure("widened_gflops_per_second");
    if (dtype == DType::kF32) {
      CHECK((native == 0 && widened == 0));
    } else {
      CHECK(answer.figure("gflops_per_second") == std::max(native, widened));
      CHECK(std::min({native, widened, answer.figure("native_over_widened")}) > 0);
    }
  }
}

TEST_CASE("writing leaves no file and makes no folder") {
  const test::TemporaryFolder folder;
  const ProbeAnswer answer =
      probe::answer({.kind = ProbeKind::kWrite, .folder = (folder / "runs/mine").string()});
  CHECK(answer.figure("mb_per_second") > 0);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("writing where nothing can be written is an error") {
  CHECK_THAT(test::error_text([] { probe::answer({.kind = ProbeKind::kWrite, .folder = "/proc/self"}); },
                              ErrorKind::kEnvironment),
             Contains("[probe] can't write into '/proc/self'"));
}

TEST_CASE("probes that ran, hung and crashed end with a finding each") {
  // A program in place of `lorikeet probe`, which does as the request's name says.
  const test::TemporaryFolder folder;
  const auto with = [&](const std::string& script) {
    const ActivePlan plan{
        .program = {"/bin/sh", {"-c", script, "sh"}}, .folder = folder.path(), .limit_seconds = 0.5};
    return run_probes(plan);
  };
  const Findings hung = with("echo here >&2; sleep 600");
  REQUIRE(hung.size() == 5);
  CHECK(hung[0].sentence == "the CPU: the probe did not end within 0.5 s; its last words: here");
  CHECK(hung[0].severity == Severity::kUnfit);
  CHECK(hung[1].sentence == "skipped: no GPU is used");
  CHECK(hung[3].sentence == "rank 0 of 2 did not end within 0.5 s; its last words: here");
  CHECK(hung[3].severity == Severity::kWarning);  // a run on one process can do without
  CHECK(hung[4].check == "disk write");

  const Findings crashed = with("kill -ABRT $$");
  CHECK_THAT(crashed.at(0).sentence, Contains("was killed by signal 6 (Aborted)"));
  CHECK(exit_code(crashed) == 3);
  const Findings silent = with("true");
  CHECK_THAT(silent.at(0).sentence, Contains("gave no answer"));
  CHECK_THAT(silent.at(3).sentence, Contains("gave no answer"));
  CHECK(exit_code(silent) == 3);
  CHECK(exit_code(with(R"(echo '{"figures":{"mb_per_second":100,"bus_gb_per_second":1},"wrong":[]}')")) == 0);
}
