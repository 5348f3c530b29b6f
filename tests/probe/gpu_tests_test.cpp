#include "probe/operators/gpu_tests.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;
using test::error_text;

namespace {

ChildResult answered(const ProbeAnswer& answer) { return {.output = answer.text() + "\n"}; }

const ProbeAnswer kAnswer{.figures = {{"fp32.results", 9},
                                      {"fp32.error", 1e-6},
                                      {"fp32.tolerance", 2e-5},
                                      {"bf16.results", 9},
                                      {"bf16.error", 0.5},
                                      {"bf16.tolerance", 2e-2}},
                          .wrong = {"bf16: rms: output is off"}};

}  // namespace

TEST_CASE("an operator's answer is a test a precision, and one that is wrong fails") {
  const auto tests = judge_operator(answered(kAnswer), "cuda:0", "norm", 60);
  REQUIRE(tests.size() == 2);
  CHECK(tests[0].precision == "fp32");
  CHECK(tests[0].passed());
  CHECK(tests[0].results == 9);
  CHECK(tests[1].precision == "bf16");
  CHECK(tests[1].error == 0.5);
  CHECK(tests[1].wrong == std::vector<std::string>{"rms: output is off"});
  CHECK(exit_code(tests) == 1);
  CHECK(exit_code({tests[0]}) == 0);
  const Json json = gpu_tests_json(tests);
  CHECK(json.find("exit_code")->integer() == 1);
  CHECK(json.find("tests")->array()[1].find("wrong")->array().size() == 1);
}

TEST_CASE("a process that crashed, hung or said nothing fails its operator") {
  const auto trouble = [](const ChildResult& result) {
    const auto tests = judge_operator(result, "cuda:0", "rotary", 60);
    REQUIRE(tests.size() == 1);
    CHECK(tests[0].precision.empty());
    REQUIRE(tests[0].wrong.size() == 1);
    return tests[0].wrong[0];
  };
  CHECK_THAT(trouble({.end = ChildResult::End::kSignalled, .code = 11}), Contains("was killed by signal 11"));
  CHECK_THAT(trouble({.end = ChildResult::End::kTimedOut, .code = 9}), Contains("did not end within 60 s"));
  CHECK_THAT(trouble({.output = "hello\n"}), Contains("gave no answer"));
  CHECK_THAT(trouble(answered({})), Contains("tested no precision"));
}

TEST_CASE("a precision in which nothing was compared has not passed") {
  ProbeAnswer empty = kAnswer;
  empty.figures[0].second = 0;
  const auto tests = judge_operator(answered(empty), "cuda:0", "norm", 60);
  CHECK(tests.at(0).wrong == std::vector<std::string>{"nothing was compared"});
}

TEST_CASE("an operator's process refuses a device and an operator that aren't there") {
  const auto asked = [](int device, const std::string& op) {
    return error_text([&] { probe_operator({.kind = ProbeKind::kOperator, .device = device, .op = op}); });
  };
  CHECK_THAT(asked(-1, "norm"), Contains("expected a GPU"));
  CHECK_THAT(asked(900, "norm"), Contains("expected a GPU") && Contains("900"));
}
