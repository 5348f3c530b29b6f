// Faults of threads that work together are found where kernels run on the host: each is planted in
// faulty_kernels.cu.
#include "card/block_threads.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "card/faulty_kernels.h"
#include "card/host_kernel.h"
#include "card/report.h"
#include "support/catch.h"

using namespace lorikeet;
using card::CopyFault;
using card::Fault;

namespace {

// What a kernel makes of 1..64.
template <typename Fault>
std::pair<float, float> sums(void (*launch)(Fault, const float*, float*, void*), Fault fault) {
  const at::Device device("cuda:0");
  const at::Tensor in = at::arange(1, 65, at::kFloat).to(device), out = at::zeros({2}).to(device);
  launch(fault, in.data_ptr<float>(), out.data_ptr<float>(), nullptr);
  const at::Tensor host = out.cpu();
  return {host[0].item<float>(), host[1].item<float>()};
}
std::pair<float, float> sums(Fault fault) { return sums(card::launch_sum, fault); }
std::pair<float, float> copied_sums(CopyFault fault) { return sums(card::launch_copied_sum, fault); }

}  // namespace

TEST_CASE("threads that work together give the sum of a block") {
  card::reset_report();
  CHECK(sums(Fault::kNone) == std::pair(2080.0F, 4160.0F));
  CHECK(card::report().kernels.at("faulty_kernels.cu") == 1);
  CHECK(card::report().hazards.empty());
}

TEST_CASE("a missing barrier and shared memory that nobody wrote give wrong numbers") {
  CHECK(std::isnan(sums(Fault::kMissingBarrier).first));
  CHECK(std::isnan(sums(Fault::kUninitialisedShared).first));
  const auto [once, twice] = sums(Fault::kMissingSecondBarrier);
  CHECK((once != 2080.0F || twice != 4160.0F));
}

TEST_CASE("copies that nobody waits for, and those that begin where others read, give wrong numbers") {
  CHECK(copied_sums(CopyFault::kNone) == std::pair(2080.0F, 528.0F));
  CHECK(std::isnan(copied_sums(CopyFault::kNotAwaited).first));
  CHECK(copied_sums(CopyFault::kOverRead).first != 2080.0F);
}

TEST_CASE("a barrier that not all threads of a block reach is found") {
  using Catch::Contains;
  CHECK_THROWS_WITH(
      sums(Fault::kDivergentBarrier),
      Contains("[faulty_kernels.cu:") && Contains("32 threads have ended, 32 wait in __syncthreads()"));
  CHECK_THROWS_WITH(sums(Fault::kTwoBarriers),
                    Contains("0 threads have ended, 32 wait in __syncthreads() of line"));
}

TEST_CASE("shuffles that CUDA leaves undefined are found") {
  using Catch::Contains;
  CHECK_THROWS_WITH(sums(Fault::kShuffleOutsideMask), Contains("reads a lane that isn't in its mask"));
  CHECK_THROWS_WITH(sums(Fault::kCallerOutsideMask), Contains("leaves out its caller"));
  CHECK_THROWS_WITH(sums(Fault::kEndedLane), Contains("a lane that has ended"));
  CHECK_THROWS_WITH(sums(Fault::kDifferentOperations), Contains("wait in a warp operation of line"));
}

TEST_CASE("more shared memory than a block has is found, and the next launch is right again") {
  CHECK_THROWS_WITH(sums(Fault::kTooMuchShared), Catch::Contains("at most 49152 bytes of shared memory"));
  CHECK(sums(Fault::kNone).first == 2080.0F);
}

TEST_CASE("threads have CUDA's indices, in blocks of less than a warp too") {
  std::vector<unsigned> seen;
  card::run_kernel({1}, {3, 2, 2}, 0, nullptr, "test.cu", card::Threads::kTogether, [&] {
    const uint3 t = threadIdx;
    const unsigned number = t.x + 3 * (t.y + 2 * t.z);
    seen.push_back(__shfl_sync(~0U, number, 11));
    CHECK(__shfl_xor_sync(~0U, number, 1) == (number ^ 1U));
    CHECK(__shfl_down_sync(~0U, number, 2, 4) == (number % 4 + 2 < 4 ? number + 2 : number));
    __syncwarp();
  });
  CHECK(seen == std::vector<unsigned>(12, 11));
}
