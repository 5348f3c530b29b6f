#include "apps/verbs/gpu_tests.h"

#include <algorithm>

#include "apps/table.h"
#include "base/strings.h"
#include "probe/operators/check.h"

namespace lorikeet::apps {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string error_text(const probe::GpuTest& test) {
  if (test.precision.empty()) return "-";
  if (test.error >= probe::OperatorCheck::kNotFinite) return "not finite";
  return format_number("%.1e", test.error);
}

std::vector<std::string> row_of(const probe::GpuTest& test) {
  const bool answered = !test.precision.empty();
  return {test.op,
          answered ? test.precision : "-",
          test.passed() ? "pass" : "FAIL",
          std::to_string(test.results),
          error_text(test),
          answered ? format_number("%.1e", test.tolerance) : "-"};
}

}  // namespace

std::string gpu_tests_table(const std::vector<probe::GpuTest>& tests) {
  std::string text;
  for (std::size_t begin = 0; begin < tests.size();) {
    const std::string& device = tests[begin].device;
    Rows rows = {{"operator", "precision", "result", "compared", "worst error", "tolerance"}};
    for (; begin < tests.size() && tests[begin].device == device; ++begin)
      rows.push_back(row_of(tests[begin]));
    text += device + "\n" + text_table(rows, /*left_aligned=*/3, /*indent=*/2);
  }
  for (const probe::GpuTest& test : tests) {
    for (const std::string& sentence : test.wrong) {
      text += "FAIL: " + test.device + ", " + test.op +
              (test.precision.empty() ? "" : " in " + test.precision) + ": " + escape_control(sentence) +
              "\n";
    }
  }
  const auto failed =
      std::count_if(tests.begin(), tests.end(), [](const auto& test) { return !test.passed(); });
  text += std::to_string(tests.size() - static_cast<std::size_t>(failed)) + " of " +
          std::to_string(tests.size()) + " tests passed\n";
  return text;
}

}  // namespace lorikeet::apps
