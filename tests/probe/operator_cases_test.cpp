// The operators' cases, which `lorikeet doctor --gpu-tests` runs on a card, on the CPU.
#include "probe/operators/cases.h"

#include <ATen/ATen.h>

#include <limits>
#include <set>

#include "ops/autograd.h"
#include "probe/operators/check.h"
#include "support/catch.h"
#include "support/reference_ops.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;

namespace {

const at::Device kCpu(at::kCPU);

const CheckedPrecision& precision_of(const std::string& name) {
  for (const CheckedPrecision& precision : checked_precisions()) {
    if (precision.name == name) return precision;
  }
  throw std::runtime_error(name);
}

void check_all(const CheckedPrecision& precision) {
  for (const std::string& op : operator_names()) {
    INFO(op << " in " << precision.name << ": " << precision.why);
    const OperatorCheck check = check_operator(op, kCpu, precision);
    CHECK(check.results > 0);
    CHECK(check.error <= precision.tolerance);
    CHECK(check.wrong == std::vector<std::string>{});
  }
}

// A case whose result is `spoil`ed where it isn't the expected one.
OperatorCase broken(const std::function<at::Tensor(const at::Tensor&)>& spoil) {
  return {"square", "3 x 4", [=](const Place& place) {
            const at::Tensor x = place.normal({3, 4}, 1), y = x * x;
            return Results{{"x", x}, {"output", place.dtype == at::kDouble ? y : spoil(y)}};
          }};
}

OperatorCheck check_of(const OperatorCase& one) {
  OperatorCheck check;
  check_case(one, kCpu, precision_of("fp32"), check);
  return check;
}

}  // namespace

TEST_CASE("each operator's cases agree with fp64 in each dtype, by kernels and by references") {
  for (const char* name : {"fp32", "bf16", "fp16"}) {
    check_all(precision_of(name));
    const test::ReferenceOps references;
    check_all(precision_of(name));
  }
}

TEST_CASE("what stands one place further in any case's result is beyond the widest tolerance") {
  const double tolerance = precision_of("bf16").tolerance;
  const ops::WithoutAutograd no_graph;
  for (const OperatorCase& one : operator_cases()) {
    for (const auto& [name, value] : one.run({.device = kCpu, .rounded = at::kFloat, .dtype = at::kDouble})) {
      if (value.numel() < 2 || name == "gradients afterwards") continue;  // which are zeros
      INFO(one.op << ", " << one.form << ": " << name);
      CHECK(relative_error(value.flatten().roll(1), value.flatten()) > 10 * tolerance);
    }
  }
}

TEST_CASE("operators are named once, and forms tell their cases apart") {
  const auto names = operator_names();
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
  std::set<std::string> forms;
  for (const OperatorCase& one : operator_cases()) CHECK(forms.insert(one.op + ": " + one.form).second);
}

TEST_CASE("a result that is off, not finite, of another shape or not there at all is named") {
  CHECK(check_of(broken([](const at::Tensor& y) { return y; })).wrong.empty());
  const OperatorCheck off = check_of(broken([](const at::Tensor& y) { return y * 1.001; }));
  CHECK(off.error == Approx(1e-3).epsilon(0.01));
  CHECK(off.results == 2);
  REQUIRE(off.wrong.size() == 1);
  CHECK_THAT(off.wrong[0], Contains("3 x 4: output is off by 0.001 of its largest value"));
  for (const auto& spoil :
       {std::function<at::Tensor(const at::Tensor&)>(
            [](const at::Tensor& y) { return y + std::numeric_limits<double>::quiet_NaN(); }),
        std::function<at::Tensor(const at::Tensor&)>([](const at::Tensor& y) { return y.t(); })}) {
    const OperatorCheck check = check_of(broken(spoil));
    REQUIRE(check.wrong.size() == 1);
    CHECK_THAT(check.wrong[0], Contains("isn't finite, or has another shape"));
    CHECK(check.error == OperatorCheck::kNotFinite);
  }
  const OperatorCheck thrown = check_of(broken([](const at::Tensor& y) { return y.view({5}); }));
  REQUIRE(thrown.wrong.size() == 1);
  CHECK_THAT(thrown.wrong[0], Contains("3 x 4: ") && Contains("invalid"));
}

TEST_CASE("a card is checked in the precisions that runs may use there") {
  const auto names = [](int major, int minor) {
    std::vector<std::string> found;
    for (const CheckedPrecision& precision :
         precisions_of({.capability_major = major, .capability_minor = minor}))
      found.emplace_back(precision.name);
    return found;
  };
  CHECK(names(9, 0) == std::vector<std::string>{"fp32", "tf32", "bf16", "fp16"});
  CHECK(names(7, 5) == std::vector<std::string>{"fp32", "fp16"});
  CHECK_THROWS_WITH(names(7, 0), Contains("compute capability 7.0") && Contains("older than Turing"));
}
