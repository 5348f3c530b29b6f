#include "ops/cpu_allocator.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "support/catch.h"

using namespace lorikeet;
using ops::cpu_memory;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

at::Tensor block(std::int64_t mib) { return at::empty({mib * kMiB}, at::kByte); }

}  // namespace

TEST_CASE("large tensors lie on huge pages and are counted, small ones are left to the heap") {
  ops::install_cpu_allocator();
  ops::install_cpu_allocator();  // again: nothing changes
  const auto before = cpu_memory().used;
  const at::Tensor large = block(3), small = at::empty({1000});
  CHECK(reinterpret_cast<std::uintptr_t>(large.data_ptr()) % (2 * kMiB) == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(small.data_ptr()) % 64 == 0);
  CHECK(cpu_memory().used - before == 4 * kMiB);  // whole huge pages
  CHECK(at::empty({0}).numel() == 0);
}

TEST_CASE("a freed block serves the next tensor of about its size") {
  ops::install_cpu_allocator();
  const void* first = nullptr;
  {
    const at::Tensor x = block(32);
    first = x.data_ptr();
  }
  CHECK(cpu_memory().kept >= 32 * kMiB);
  const at::Tensor nearly = block(30);
  CHECK(nearly.data_ptr() == first);
  const at::Tensor far = block(8);
  CHECK(far.data_ptr() != first);
}

TEST_CASE("what a peak took is kept, and little more") {
  ops::install_cpu_allocator();
  ops::release_free_blocks();
  REQUIRE(cpu_memory().kept == 0);
  const auto mib = [](std::size_t bytes) { return static_cast<std::int64_t>(bytes) / kMiB; };
  std::vector<at::Tensor> all;
  for (int i = 0; i < 20; ++i) all.push_back(block(20 + 4 * i));  // 1,160 MiB
  all.resize(10);
  CHECK(mib(cpu_memory().kept) == 780);
  all.clear();
  CHECK(mib(cpu_memory().kept) == 1160);
  const at::Tensor huge = block(1024);  // none of them serves it
  CHECK(mib(cpu_memory().resident) <= 1160 + 1160 / 16);
  ops::release_free_blocks();
  CHECK(cpu_memory().kept == 0);
  CHECK(mib(cpu_memory().used) >= 1024);
}

TEST_CASE("tensors keep their values while threads make and free others") {
  ops::install_cpu_allocator();
  const auto before = cpu_memory().used;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([id, &wrong] {
      for (int round = 0; round < 40; ++round) {
        at::Tensor x = at::full({(2 + (round + id) % 3) * kMiB}, id * 50 + round, at::kByte);
        std::this_thread::yield();
        wrong[static_cast<std::size_t>(id)] += (x != id * 50 + round).any().item<bool>() ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
  CHECK(cpu_memory().used == before);
}
