#include "probe/finding.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::probe;

TEST_CASE("the exit code is that of the gravest finding") {
  CHECK(exit_code({}) == 0);
  Findings findings{{"a", Severity::kOk, "fine"}, {"b", Severity::kNote, "known"}};
  CHECK(exit_code(findings) == 0);
  findings.emplace_back("c", Severity::kWarning, "slow");
  CHECK(exit_code(findings) == 1);
  findings.emplace_back("d", Severity::kUnfit, "broken");
  findings.emplace_back("e", Severity::kOk, "fine");
  CHECK(exit_code(findings) == 3);
}

TEST_CASE("a run goes on with warnings, and ends where something is unfit") {
  Findings findings{{"threads", Severity::kWarning, "too many", "export OMP_NUM_THREADS=2"},
                    {"ECC", Severity::kNote, "old"}};
  const auto enforced = [&] { return test::error_text([&] { enforce(findings); }, ErrorKind::kEnvironment); };
  CHECK(enforced() == "no error");
  findings.emplace_back("driver", Severity::kUnfit, "too old", "install a newer one");
  findings.emplace_back("output folder", Severity::kUnfit, "read-only");
  CHECK(enforced() ==
        "[preflight] expected a machine that is fit for this run, got: driver: too old; to fix it: install "
        "a newer "
        "one; output folder: read-only; `lorikeet doctor` shows all");
}

TEST_CASE("the table has a line for each, and one for its command") {
  const Findings findings{{"first", Severity::kOk, "fine"},
                          {"second one", Severity::kWarning, "slow", "unset X"}};
  CHECK(format_table(findings) ==
        "first       ok       fine\n"
        "second one  warning  slow\n"
        "                     fix: unset X\n");
}

TEST_CASE("what a finding quotes can't drive a terminal or break the table") {
  const Finding finding("NCCL_ALGO", Severity::kNote, "NCCL_ALGO=\x1b[2J\nok", "unset\tX");
  CHECK(finding.sentence == "NCCL_ALGO=\\x1b[2J ok");
  CHECK(finding.command == "unset X");
}

TEST_CASE("findings are JSON with their figures") {
  Findings findings{{"matrix product", Severity::kOk, "fast"}, {"GPUs", Severity::kUnfit, "none", "buy one"}};
  findings[0].figures = {{"gflops_per_second", 50.5}};
  CHECK(
      findings_json(findings).dump() ==
      R"({"exit_code":3,"findings":[{"check":"matrix product","result":"ok","sentence":"fast","command":null,)"
      R"("figures":{"gflops_per_second":50.5}},{"check":"GPUs","result":"unfit","sentence":"none",)"
      R"("command":"buy one","figures":{}}]})");
}
