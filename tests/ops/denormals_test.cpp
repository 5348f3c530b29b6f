#include "ops/denormals.h"

#include <ATen/ATen.h>

#include <thread>

#include "support/catch.h"

using namespace lorikeet;

namespace {

bool are_flushed() {
  const at::Tensor small = at::full({64}, 1e-30F);
  return (small * 1e-10F).count_nonzero().item<std::int64_t>() == 0;
}

}  // namespace

TEST_CASE("numbers below the smallest normal one become 0 on a thread and on those that it starts") {
  bool here = false, below = false;
  std::thread([&] {
    ops::flush_denormals();
    here = are_flushed();
    std::thread([&] { below = are_flushed(); }).join();
  }).join();
  CHECK(here);
  CHECK(below);
  CHECK_FALSE(are_flushed());  // on other threads nothing has changed
}
