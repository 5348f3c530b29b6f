#include "nn/host_layout.h"

#include <bit>
#include <numeric>

#include "support/catch.h"

using namespace lorikeet;

namespace {

// Bytes that the layout's blocks take where memory comes in powers of two.
std::int64_t pinned(const std::vector<std::int64_t>& units) {
  std::int64_t total = 0;
  for (const std::int64_t block : nn::host_layout(units).block_bytes)
    total += static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(block)));
  return total;
}

constexpr std::int64_t kMiB = 1 << 20;

}  // namespace

TEST_CASE("units lie in their blocks one behind the other, aligned, and never over an end") {
  const std::vector<std::int64_t> units{1000, 0, 700, 512, 4097, 3, 100000, 1};
  const auto layout = nn::host_layout(units);
  REQUIRE(layout.places.size() == units.size());
  std::vector<std::int64_t> ends(layout.block_bytes.size());
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto [block, offset] = layout.places[i];
    CHECK(offset % 512 == 0);
    CHECK(offset >= ends.at(block));
    CHECK(offset < ends[block] + 512);
    ends[block] = offset + units[i];
  }
  CHECK(ends == layout.block_bytes);
  CHECK(nn::host_layout({}).places.empty());
}

TEST_CASE("the layers of real models leave little of their pinned memory unused") {
  // Qwen2.5's 14B (48 layers of 525 MiB) and 7B, Llama-3.1's 8B and 70B: layers, and embedding and head.
  const std::vector<std::pair<std::int64_t, std::int64_t>> models{
      {48, 525}, {28, 445}, {32, 416}, {80, 1632}};
  for (const auto& [layers, mib] : models) {
    std::vector<std::int64_t> units(static_cast<std::size_t>(layers), mib * kMiB);
    units.insert(units.begin(), 1485 * kMiB);
    units.push_back(1485 * kMiB);
    const auto sum = std::accumulate(units.begin(), units.end(), std::int64_t{0});
    CAPTURE(mib, sum / kMiB, pinned(units) / kMiB);
    CHECK(static_cast<double>(pinned(units)) <= 1.06 * static_cast<double>(sum));
  }
}
