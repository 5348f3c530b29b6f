#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "probe/active.h"

// `lorikeet doctor --gpu-tests`: every operator on a GPU against fp64 on the CPU.
namespace lorikeet::probe {

/// What came of an operator in one precision on one GPU.
struct GpuTest {
  std::string device;  ///< "cuda:0 (its name)"
  std::string op;
  std::string precision;  ///< empty where the operator's process ended before it answered
  int results = 0;        ///< compared tensors
  double error = 0, tolerance = 0;
  std::vector<std::string> wrong;  ///< what is wrong, a sentence each; none: the test has passed

  bool passed() const { return wrong.empty(); }
};

/// Tests each operator on each GPU, in a process of its own: a kernel that crashes or hangs takes no other
/// operator's test with it. `limit_seconds`: of a process; 60 by default.
std::vector<GpuTest> run_gpu_tests(const ProbeProgram& program, const std::vector<ProbedGpu>& gpus,
                                   std::optional<double> limit_seconds);

/// In the child: all precisions of request.device for the operator request.op. Figures, for each:
/// "fp32.results", "fp32.error", "fp32.tolerance"; what is wrong begins with "fp32: ".
ProbeAnswer probe_operator(const ProbeRequest& request);

/// The tests of one child, from how it ended.
std::vector<GpuTest> judge_operator(const ChildResult& result, const std::string& device,
                                    const std::string& op, double limit_seconds);

/// 1 when a test has failed, else 0.
int exit_code(const std::vector<GpuTest>& tests);

/// {"exit_code", "tests": [{"device", "operator", "precision", "results", "error", "tolerance", "wrong"}]}.
Json gpu_tests_json(const std::vector<GpuTest>& tests);

}  // namespace lorikeet::probe
