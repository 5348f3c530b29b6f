// DoRA's kernels on the fake card, against the reference in fp64.
#include "ops/lora/dora.h"

#include <utility>
#include <vector>

#include "card/kernel_checks.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

TEST_CASE("columns are scaled on a card, and their factors' gradients summed, whatever the rows and widths") {
  // One block's rows and more, several columns a thread and one, with a bias and without, no rows.
  for (const auto& [rows, width] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{3, 40}, {300, 72}, {129, 1031}, {2, 2048}}) {
    for (const bool with_bias : {false, true}) {
      CAPTURE(rows, width, with_bias);
      const at::Tensor factors = random({width}, 21).to(at::kFloat) + 1.5, bias = random({width}, 22);
      check_kernel_dtypes(
          "dora_cuda.cu",
          [=](const at::Tensor& x, Backward& backward) {
            backward = [=](const at::Tensor& dy) {
              return scale_columns_backward(dy, x, factors.to(kCard)).dx;
            };
            return scale_columns(x, factors.to(kCard),
                                 with_bias ? bias.to(kCard, x.scalar_type()) : at::Tensor());
          },
          [=](const at::Tensor& x) {
            return reference::scale_columns(x, factors.to(at::kDouble), with_bias ? bias : at::Tensor());
          },
          random({rows, width}, 23));
    }
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      CAPTURE(rows, width, c10::toString(dtype));
      const at::Tensor x = random({rows, width}, 23).to(dtype), dy = random({rows, width}, 24).to(dtype);
      const at::Tensor factors = at::ones({width}, at::kFloat);
      const auto back = scale_columns_backward(dy.to(kCard), x.to(kCard), factors.to(kCard));
      const at::Tensor expected = (x.to(at::kDouble) * dy.to(at::kDouble)).sum(0);
      CHECK(relative_distance(back.factors.cpu(), expected) < 1e-6);  // fp32 sums
      CHECK(relative_distance(back.factors.cpu().roll(1), expected) > 0.1);
    }
  }
  const auto none =
      scale_columns_backward(at::empty({0, 8}, kCard), at::empty({0, 8}, kCard), at::ones({8}, kCard));
  CHECK(none.factors.cpu().count_nonzero().item<std::int64_t>() == 0);
}
