#include "probe/operators/gpu_tests.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "device/device.h"
#include "ops/cuda_library.h"
#include "probe/operators/check.h"

namespace lorikeet::probe {
namespace {

std::string figure_of(const CheckedPrecision& precision, const char* what) {
  return std::string(precision.name) + "." + what;
}

GpuTest without_answer(const std::string& device, const std::string& op, const std::string& trouble) {
  return {.device = device, .op = op, .wrong = {"its process " + trouble}};
}

}  // namespace

ProbeAnswer probe_operator(const ProbeRequest& request) {
  const auto& cards = device::cuda_devices();
  const auto index = static_cast<std::size_t>(request.device);
  if (request.device < 0 || index >= cards.size())
    throw Error("[probe] expected a GPU for the test of an operator, got device " +
                std::to_string(request.device));
  const auto names = operator_names();
  if (std::find(names.begin(), names.end(), request.op) == names.end())
    throw Error("[probe] expected an operator's name, got '" + request.op + "'");
  ProbeAnswer answer;
  for (const CheckedPrecision& precision : precisions_of(cards[index])) {
    const OperatorCheck check = check_operator(request.op, ops::use_cuda_device(request.device), precision);
    answer.figures.emplace_back(figure_of(precision, "results"), check.results);
    answer.figures.emplace_back(figure_of(precision, "error"), check.error);
    answer.figures.emplace_back(figure_of(precision, "tolerance"), precision.tolerance);
    for (const std::string& sentence : check.wrong)
      answer.wrong.push_back(std::string(precision.name) + ": " + sentence);
  }
  return answer;
}

std::vector<GpuTest> judge_operator(const ChildResult& result, const std::string& device,
                                    const std::string& op, double limit_seconds) {
  if (!result.succeeded()) return {without_answer(device, op, result.trouble(limit_seconds))};
  try {
    const ProbeAnswer answer = ProbeAnswer::parse(result.output);
    std::vector<GpuTest> tests;
    for (const CheckedPrecision& precision : checked_precisions()) {
      if (answer.figure(figure_of(precision, "tolerance")) == 0) continue;  // the card has no such arithmetic
      GpuTest test{.device = device,
                   .op = op,
                   .precision = precision.name,
                   .results = static_cast<int>(answer.figure(figure_of(precision, "results"))),
                   .error = answer.figure(figure_of(precision, "error")),
                   .tolerance = answer.figure(figure_of(precision, "tolerance"))};
      const std::string prefix = std::string(precision.name) + ": ";
      for (const std::string& sentence : answer.wrong) {
        if (sentence.starts_with(prefix)) test.wrong.push_back(sentence.substr(prefix.size()));
      }
      if (test.results == 0 && test.wrong.empty()) test.wrong.emplace_back("nothing was compared");
      tests.push_back(std::move(test));
    }
    if (tests.empty()) return {without_answer(device, op, "tested no precision")};
    return tests;
  } catch (const Error& error) {
    return {without_answer(device, op, std::string("gave no answer: ") + error.what())};
  }
}

std::vector<GpuTest> run_gpu_tests(const ProbeProgram& program, const std::vector<ProbedGpu>& gpus,
                                   std::optional<double> limit_seconds) {
  const double limit = limit_seconds.value_or(probe::limit_seconds(ProbeKind::kOperator));
  std::vector<GpuTest> tests;
  for (const ProbedGpu& gpu : gpus) {
    const std::string device = "cuda:" + std::to_string(gpu.number) + " (" + gpu.name + ")";
    for (const std::string& op : operator_names()) {
      log_info("testing: " + op + ", " + device);
      const ProbeRequest request{
          .kind = ProbeKind::kOperator, .device = gpu.number, .limit_seconds = limit, .op = op};
      const ChildResult result = run_children({program.child(request)}, limit).at(0);
      for (GpuTest& test : judge_operator(result, device, op, limit)) {
        for (const std::string& sentence : test.wrong) log_warning(op + ": " + sentence);
        tests.push_back(std::move(test));
      }
    }
  }
  return tests;
}

int exit_code(const std::vector<GpuTest>& tests) {
  const bool passed =
      std::all_of(tests.begin(), tests.end(), [](const GpuTest& test) { return test.passed(); });
  return passed ? 0 : static_cast<int>(ErrorKind::kRunFailed);
}

Json gpu_tests_json(const std::vector<GpuTest>& tests) {
  Json::Array list;
  for (const GpuTest& test : tests) {
    Json one;
    one.set("device", test.device).set("operator", test.op);
    one.set("precision", test.precision.empty() ? Json() : Json(test.precision));
    one.set("results", test.results).set("error", test.error).set("tolerance", test.tolerance);
    one.set("wrong", Json::Array(test.wrong.begin(), test.wrong.end()));
    list.push_back(std::move(one));
  }
  Json json;
  json.set("exit_code", exit_code(tests)).set("tests", std::move(list));
  return json;
}

}  // namespace lorikeet::probe
