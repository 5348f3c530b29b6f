#include "ops/matmul/matmul.h"
#include "probe/active.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;

namespace {

const ProbedGpu kA100{.number = 0, .name = "NVIDIA A100-SXM4-80GB", .pcie_width = 16, .pcie_generation = 4};

std::string text(const Findings& findings) {
  REQUIRE(findings.size() == 1);
  return std::string(name_of(findings[0].severity)) + ": " + findings[0].sentence;
}

ChildResult answered(double rate) {
  return {.output = ProbeAnswer{.figures = {{"bus_gb_per_second", rate}}}.text()};
}

}  // namespace

TEST_CASE("a product's rate is held against the card's data sheet") {
  const auto judged = [](double tflops, const ProbedGpu* gpu) {
    return text(judge_matmul({.figures = {{"gflops_per_second", tflops * 1e3}}}, {}, gpu, "cuda:0"));
  };
  CHECK(judged(250, &kA100) ==
        "ok: cuda:0 multiplies bf16 matrices at 250 TFLOP/s, 80% of its data sheet's 312");
  CHECK_THAT(judged(100, &kA100), Catch::StartsWith("warning: ") && Contains("32% of its data sheet's 312"));
  const ProbedGpu unknown{.name = "NVIDIA Test 100"};
  CHECK(judged(100, &unknown) ==
        "ok: cuda:0 multiplies bf16 matrices at 100 TFLOP/s; its data sheet isn't known here");
  CHECK(judged(0.05, nullptr) == "ok: cuda:0 multiplies bf16 matrices at 50 GFLOP/s");
}

TEST_CASE("a fast card that computes wrong is unfit") {
  CHECK(text(judge_matmul({.figures = {{"gflops_per_second", 3e5}}, .wrong = {"5 are not 8192"}}, {}, &kA100,
                          "cuda:0")) == "unfit: cuda:0 computes wrong: 5 are not 8192");
}

TEST_CASE("both rates of a CPU's 16-bit products are reported, and which way is taken and why") {
  const auto judged = [](double native, double widened, config::Matmul matmul, bool deterministic) {
    return text(judge_half_products({.figures = {{"native_gflops_per_second", native},
                                                 {"widened_gflops_per_second", widened},
                                                 {"native_over_widened", native / widened}}},
                                    {.matmul = matmul}, deterministic));
  };
  constexpr config::Matmul kUnset = config::Matmul::kFp32;
  CHECK(judged(150, 300, kUnset, false) ==
        "ok: the CPU multiplies bf16 matrices at 150 GFLOP/s natively and 300 widened to fp32; taken is "
        "widened, which is faster; a run measures with its own shapes");
  CHECK_THAT(judged(800, 200, kUnset, false), Contains("taken is native, which is faster"));
  CHECK_THAT(judged(800, 200, config::Matmul::kWidened, false),
             Contains("taken is widened, as precision.matmul says"));
  CHECK_THAT(judged(150, 300, config::Matmul::kNative, true),
             Contains("taken is native, as precision.matmul"));
  const std::string by_feature = ops::native_by_feature(at::kBFloat16) ? "native" : "widened";
  CHECK_THAT(judged(150, 300, kUnset, true), Contains("taken is " + by_feature + ", by the CPU's features"));
  CHECK_THAT(judged(800, 200, kUnset, true), Contains("taken is " + by_feature + ", by the CPU's features"));
  CHECK(text(judge_half_products({.wrong = {"5 are not 1024"}}, {}, false)) ==
        "unfit: the CPU computes wrong: 5 are not 1024");
}

TEST_CASE("host copies are held against the card's link") {
  const auto judged = [](double to, double from, const ProbedGpu& gpu) {
    return text(judge_transfer(
        {.figures = {{"host_to_device_gb_per_second", to}, {"device_to_host_gb_per_second", from}}}, gpu,
        "cuda:0"));
  };
  CHECK(judged(24, 25, kA100) ==
        "ok: cuda:0: 24 GB/s to it and 25 GB/s back, where its PCIe link (generation 4, 16 lanes) carries "
        "about 25");
  CHECK_THAT(judged(24, 6, kA100), Catch::StartsWith("warning: "));
  CHECK_THAT(judged(1, 1, {.name = "x"}), Catch::StartsWith("ok: ") && Contains("its link isn't known"));
  CHECK(worst(judge_transfer({.wrong = {"3 of 8 bytes differ"}}, kA100, "cuda:0")) == Severity::kUnfit);
}

TEST_CASE("a copy between GPUs that arrives otherwise is unfit, each such pair") {
  const Findings found =
      judge_peer_copy({.figures = {{"to_cuda_2_gb_per_second", 10}},
                       .wrong = {"a pattern copied from cuda:0 to cuda:1: 4 of 8 bytes differ",
                                 "a pattern copied from cuda:0 to cuda:3: 1 of 8 bytes differ"}},
                      "cuda:0");
  CHECK(found.size() == 2);
  CHECK(worst(found) == Severity::kUnfit);
  CHECK_THAT(found[0].command, Contains("NCCL_P2P_DISABLE=1"));
  CHECK_THAT(text(judge_peer_copy({.figures = {{"a", 20}, {"b", 10}}}, "cuda:0")),
             Contains("arrives byte for byte, at 10 to 20 GB/s"));
}

TEST_CASE("an all-reduce is as fast as its slowest rank") {
  CHECK(text(judge_all_reduce({answered(12), answered(10)}, /*cuda=*/true, /*needed=*/true, 20)) ==
        "ok: 2 ranks add up over NCCL at 10 GB/s (bus, 4 MiB)");
}

TEST_CASE("an all-reduce that fails is unfit where the run needs it, and the rank to blame is named") {
  const ChildResult stopped{.end = ChildResult::End::kStopped};
  const ChildResult crashed{.end = ChildResult::End::kSignalled, .code = 9, .errors = "joining the group\n"};
  const std::vector<ChildResult> results{stopped, crashed};
  CHECK(text(judge_all_reduce(results, true, true, 20)) ==
        "unfit: rank 1 of 2 was killed by signal 9 (Killed); its last words: joining the group");
  CHECK(worst(judge_all_reduce(results, false, false, 20)) == Severity::kWarning);
  const ChildResult hung{.end = ChildResult::End::kTimedOut, .errors = "in the first all-reduce\n"};
  CHECK_THAT(text(judge_all_reduce({hung, hung}, true, true, 20)),
             Contains("rank 0 of 2 did not end within 20 s; its last words: in the first all-reduce"));
}

TEST_CASE("sums that are wrong are unfit whatever their rate") {
  const ChildResult wrong{.output = ProbeAnswer{.wrong = {"rank 1 has 1 of 4 sums that are not 3"}}.text()};
  CHECK(text(judge_all_reduce({answered(12), wrong}, true, false, 20)) ==
        "unfit: rank 1 has 1 of 4 sums that are not 3");
}

TEST_CASE("a slow disk is a warning") {
  CHECK(text(judge_write({.figures = {{"mb_per_second", 450}}}, "runs")) ==
        "ok: 450 MB/s into 'runs' (16 MiB with fsync)");
  CHECK(worst(judge_write({.figures = {{"mb_per_second", 5}}}, "runs")) == Severity::kWarning);
}
