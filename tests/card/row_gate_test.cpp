// The kernel of a shared expert's gate on the fake card against fp64 references.
#include "ops/row_gate/row_gate.h"

#include <ATen/ATen.h>

#include "card/kernel_checks.h"
#include "ops/row_gate_pair.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr const char* kKernels = "row_gate_cuda.cu";

// Launches in a pass over rows of so many numbers, which mustn't have a hazard.
std::int64_t launches(std::int64_t rows, std::int64_t width, at::ScalarType dtype, std::int64_t offset = 0) {
  const at::Tensor memory = random({rows * width + offset}, 2).to(dtype).to(kCard);
  const at::Tensor x = memory.slice(0, offset).view({rows, width});
  const at::Tensor gate = random({rows, 1}, 3).to(dtype).to(kCard), y = random({rows, width}, 4).to(dtype);
  const at::Tensor on_card = y.to(kCard);
  card::reset_report();
  add_row_gate_(on_card, x, gate);
  const at::Tensor gated = row_gate(x, gate);
  CHECK(card::report().hazards.empty());
  const std::int64_t launched = card::report().kernels[kKernels];
  const auto wide = [](const at::Tensor& tensor) { return tensor.cpu().to(at::kDouble); };
  const at::Tensor expected = ops::reference::row_gate(wide(x), wide(gate));
  const double tolerance = dtype == at::kBFloat16 ? 4e-3 : 1e-6;
  CHECK(relative_distance(gated.cpu(), expected) <= tolerance);
  CHECK(relative_distance(on_card.cpu(), wide(y) + expected) <= tolerance);
  return launched;
}

}  // namespace

TEST_CASE("the gate of rows on a card agrees with its reference") {
  // Less than a block, several blocks, of which the last isn't full.
  for (const std::int64_t width : {8, 64, 2056, 4104}) {
    CAPTURE(width);
    check_kernel_dtypes(kKernels, row_gate_pair, row_gate_reference, random({11, 2 * width + 1}, 1));
  }
}

TEST_CASE("gates of rows on a card that its kernel doesn't take go through the reference") {
  CHECK(launches(3, 12, at::kFloat) == 2);
  CHECK(launches(3, 12, at::kBFloat16) == 0);
  CHECK(launches(3, 16, at::kBFloat16) == 2);
  CHECK(launches(3, 16, at::kBFloat16, /*offset=*/1) == 0);
  CHECK(launches(3, 16, at::kDouble) == 0);
  CHECK(launches(0, 16, at::kFloat) == 0);
}

TEST_CASE("the gate of rows covers more rows than a launch has blocks") {
  const at::Tensor x = random({65540, 8}, 5).to(at::kHalf).to(kCard);
  const at::Tensor gate = random({65540, 1}, 6).to(at::kHalf).to(kCard), y = row_gate(x, gate);
  CHECK(at::equal(y.slice(0, 65530).cpu(), row_gate(x.slice(0, 65530), gate.slice(0, 65530)).cpu()));
}
