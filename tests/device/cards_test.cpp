#include "device/cards.h"

#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;

namespace {

constexpr std::uint64_t kGigabyte = 1'000'000'000;

PciAddress address(std::size_t card) { return {0, static_cast<unsigned>(0x10 * (card + 1)), 0, 0}; }
std::string uuid(std::size_t card) { return "GPU-0000000" + std::to_string(card); }

// Cards 0-2 and 1-3 are joined by NVLink, all others by PCIe through the host.
Snapshot four_cards() {
  Snapshot snapshot;
  const std::size_t count = 4;
  snapshot.topology.links.assign(count, std::vector<Link>(count, Link{LinkKind::kPhb, 0, true}));
  for (std::size_t i = 0; i < count; ++i) {
    GpuInfo gpu;
    gpu.uuid = uuid(i);
    gpu.pci = address(i);
    snapshot.inventory.gpus.push_back(gpu);
    TopologyGpu node;
    node.label = "GPU" + std::to_string(i);
    node.model = "NVIDIA Test 100";
    node.memory_free_bytes = 40 * kGigabyte;
    snapshot.topology.gpus.push_back(node);
    snapshot.topology.links[i][i] = {LinkKind::kSelf, 0, {}};
    snapshot.topology.links[i][(i + 2) % count] = {LinkKind::kNvLink, 4, true};
  }
  return snapshot;
}

std::vector<CudaDevice> cuda(const std::vector<std::size_t>& cards) {
  std::vector<CudaDevice> found;
  for (const std::size_t card : cards)
    found.push_back({"NVIDIA Test 100", 48ULL << 30, 8, 0, uuid(card), address(card)});
  return found;
}

using Numbers = std::vector<int>;

}  // namespace

TEST_CASE("two ranks take the pair with the fastest link, not the first two") {
  const CardOrder order = preferred_cards(cuda({0, 1, 2, 3}), four_cards(), 2);
  CHECK(order.numbers == Numbers{0, 2, 1, 3});
  CHECK_THAT(order.reason, Contains("the largest all-reduce bandwidth (estimated from the links) of 6 sets"));
}

TEST_CASE("CUDA's numbers are looked up by UUID, or by address where that isn't told") {
  // CUDA_VISIBLE_DEVICES=3,2,1: the pair 1-3 has the numbers 2 and 0.
  std::vector<CudaDevice> found = cuda({3, 2, 1});
  CHECK(preferred_cards(found, four_cards(), 2).numbers == Numbers{0, 2, 1});
  for (CudaDevice& device : found) device.uuid.clear();
  CHECK(preferred_cards(found, four_cards(), 2).numbers == Numbers{0, 2, 1});
}

TEST_CASE("one rank takes the first card whose memory is free") {
  Snapshot snapshot = four_cards();
  CHECK(preferred_cards(cuda({0, 1, 2, 3}), snapshot, 1).numbers[0] == 0);
  snapshot.topology.gpus[0].memory_free_bytes = 5 * kGigabyte;
  CHECK(preferred_cards(cuda({0, 1, 2, 3}), snapshot, 1).numbers == Numbers{1, 0, 2, 3});
}

TEST_CASE("a measured set overrules the label") {
  Snapshot snapshot = four_cards();
  snapshot.measured.sets = {{{0, 2}, 3.0}, {{1, 2}, 9.0}, {{1, 3}, 3.0}};
  for (const GpuSet& set : {GpuSet{0, 1}, {0, 3}, {2, 3}}) snapshot.measured.sets.push_back({set, 1.0});
  CHECK(preferred_cards(cuda({0, 1, 2, 3}), snapshot, 2).numbers == Numbers{1, 2, 0, 3});
}

TEST_CASE("where there is nothing to choose, or a card isn't known, cards are taken by number") {
  const Snapshot snapshot = four_cards();
  const auto by_number = [](const CardOrder& order, std::size_t count) {
    bool same = order.numbers.size() == count && order.reason.empty();
    for (std::size_t i = 0; i < order.numbers.size(); ++i)
      same = same && order.numbers[i] == static_cast<int>(i);
    return same;
  };
  CHECK(by_number(preferred_cards(cuda({0, 1, 2, 3}), snapshot, 4), 4));
  CHECK(by_number(preferred_cards(cuda({0, 1}), snapshot, 3), 2));
  CHECK(by_number(preferred_cards(cuda({0, 1, 7}), snapshot, 2), 3));
  CHECK(by_number(preferred_cards(cuda({0, 1, 2}), Snapshot{}, 2), 3));
  CHECK(preferred_cards({}, snapshot, 1).numbers.empty());
  Snapshot sliced = four_cards();
  sliced.inventory.gpus[1].mig = true;
  CHECK(by_number(preferred_cards(cuda({0, 1, 2, 3}), sliced, 2), 4));
}

TEST_CASE("a snapshot can be taken with and without a driver") {
  const Snapshot& snapshot = first_snapshot();
  CHECK(snapshot.topology.gpus.size() == snapshot.inventory.gpus.size());
  CHECK((!snapshot.inventory.gpus.empty() || !snapshot.inventory.lost.empty() ||
         !snapshot.inventory.absent.empty()));
}
