#include "device/memory.h"

#include "base/file.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::device;
using test::TemporaryFolder;

TEST_CASE("main memory is what the kernel calls available, or what a container's limit leaves") {
  const TemporaryFolder proc, cgroup;
  CHECK_FALSE(available_main_memory(proc.path(), cgroup.path()));
  write_file_atomic(proc / "meminfo", "MemTotal:  100 kB\nMemFree:  10 kB\nMemAvailable:     60 kB\n");
  CHECK(available_main_memory(proc.path(), cgroup.path()) == 60 * 1024);
  write_file_atomic(cgroup / "memory.max", "max\n");
  write_file_atomic(cgroup / "memory.current", "1000\n");
  CHECK(available_main_memory(proc.path(), cgroup.path()) == 60 * 1024);
  write_file_atomic(cgroup / "memory.max", "5000\n");
  CHECK(available_main_memory(proc.path(), cgroup.path()) == 4000);
  write_file_atomic(cgroup / "memory.stat", "anon 600\ninactive_file 300\nactive_file 50\nfile 400\n");
  CHECK(available_main_memory(proc.path(), cgroup.path()) == 4350);  // file pages are given back
  write_file_atomic(cgroup / "memory.current", "6000\n");
  CHECK(available_main_memory(proc.path(), cgroup.path()) == 0);
}

TEST_CASE("a machine's memory is all that it has, or a container's limit") {
  const TemporaryFolder proc, cgroup;
  CHECK_FALSE(total_main_memory(proc.path(), cgroup.path()));
  write_file_atomic(cgroup / "memory.max", "max\n");
  write_file_atomic(proc / "meminfo", "MemTotal:  100 kB\nMemAvailable:     60 kB\n");
  CHECK(total_main_memory(proc.path(), cgroup.path()) == 100 * 1024);
  write_file_atomic(cgroup / "memory.max", "5000\n");
  CHECK(total_main_memory(proc.path(), cgroup.path()) == 5000);
}

TEST_CASE("processes of one machine share its memory; a card is one process's") {
  const auto one = available_memory({}, {}, {}, 1), four = available_memory({}, {}, {}, 4);
  REQUIRE(one);
  CHECK(static_cast<double>(*four) == Approx(static_cast<double>(*one) / 4).epsilon(0.2));
  const Device card{Device::Kind::kCuda, 1};
  const std::vector<CudaDevice> found{{"A", 10'000}, {"B", 100'000, 8, 0, "GPU-b"}};
  CHECK(available_memory(card, found, {}, 4) == 94'000);
  CHECK_FALSE(available_memory(card, {}, {}, 1));
}

TEST_CASE("what others hold of a card's memory is not available") {
  const Device card{Device::Kind::kCuda, 0};
  const std::vector<CudaDevice> found{{"B", 100'000, 8, 0, "GPU-b"}};
  Inventory inventory;
  inventory.gpus.push_back({.uuid = "GPU-b", .memory_free_bytes = 60'000});
  CHECK(available_memory(card, found, inventory, 1) == 54'000);
  CHECK(free_memory(card, found, inventory, 1) == 60'000);
  CHECK(memory_of_kind(card, found, 1) == 94'000);
  inventory.gpus[0].memory_free_bytes = 1'000;
  CHECK(available_memory(card, found, inventory, 1) == 0);
  inventory.gpus[0].mig = true;  // of the whole card, not of the slice that CUDA offers
  CHECK(available_memory(card, found, inventory, 1) == 94'000);
  inventory.gpus[0] = {.uuid = "GPU-other", .memory_free_bytes = 60'000};
  CHECK(available_memory(card, found, inventory, 1) == 94'000);
}
