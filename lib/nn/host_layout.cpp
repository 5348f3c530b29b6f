#include "nn/host_layout.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "nn/alignment.h"

namespace lorikeet::nn {
namespace {

std::int64_t taken(std::int64_t bytes) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

}  // namespace

HostLayout host_layout(const std::vector<std::int64_t>& unit_bytes) {
  const std::size_t count = unit_bytes.size();
  // Of the units from each on: what they take at least, and how many lie in their first block then.
  std::vector<std::int64_t> least(count + 1, 0);
  std::vector<std::size_t> in_block(count + 1, 0);
  for (std::size_t first = count; first-- > 0;) {
    least[first] = std::numeric_limits<std::int64_t>::max();
    std::int64_t bytes = 0;
    for (std::size_t last = first; last < count; ++last) {
      bytes = aligned(bytes) + unit_bytes[last];
      const std::int64_t total = taken(bytes) + least[last + 1];
      if (total > least[first]) continue;  // of equal ones the larger block
      least[first] = total;
      in_block[first] = last + 1 - first;
    }
  }
  HostLayout out;
  for (std::size_t first = 0; first < count; first += in_block[first]) {
    std::int64_t end = 0;
    for (std::size_t i = first; i < first + in_block[first]; ++i) {
      out.places.push_back({.block = out.block_bytes.size(), .offset_bytes = aligned(end)});
      end = aligned(end) + unit_bytes[i];
    }
    out.block_bytes.push_back(end);
  }
  return out;
}

}  // namespace lorikeet::nn
