#include "parallel/step_table.h"

#include <ATen/ATen.h>

#include <mutex>

#include "comm/ranks.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::test;
using parallel::StepReport;

TEST_CASE("every rank gets every rank's report") {
  std::vector<std::vector<StepReport>> tables(3);
  on_ranks(3, [&](comm::Communicator& group) {
    const double rank = group.rank();
    const StepReport own{.loss_sum = 10 + rank, .memory_peak_bytes = 1e15 + rank, .checksum = rank / 3};
    tables[static_cast<std::size_t>(group.rank())] = parallel::exchange(group, own, at::kCPU);
  });
  for (const auto& table : tables) {
    REQUIRE(table.size() == 3);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      CHECK(table[rank].loss_sum == 10 + static_cast<double>(rank));
      CHECK(table[rank].memory_peak_bytes == 1e15 + static_cast<double>(rank));
      CHECK(table[rank].checksum == static_cast<double>(rank) / 3);
      CHECK(table[rank].data_seconds == 0);
    }
  }
}

TEST_CASE("a checksum sees a flipped bit and values that changed places") {
  const at::Tensor x = at::randn({10000});
  const double sum = parallel::checksum(x);
  CHECK(parallel::checksum(x.clone()) == sum);
  at::Tensor y = x.clone();
  y.view(at::kInt)[4321].bitwise_xor_(1);
  CHECK(parallel::checksum(y) != sum);
  y = x.clone();
  y[17] = x[18];
  y[18] = x[17];
  CHECK(parallel::checksum(y) != sum);
}

TEST_CASE("a checksum of 16-bit numbers may be of an odd count") {
  const at::Tensor x = at::randn({1281}).to(at::kBFloat16);
  const double sum = parallel::checksum(x);
  at::Tensor y = x.clone();
  y.view(at::kShort)[1280].bitwise_xor_(1);
  CHECK(parallel::checksum(y) != sum);
  CHECK(parallel::checksum(x.clone()) == sum);
}
