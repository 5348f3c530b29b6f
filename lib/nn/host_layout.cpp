#include "nn/host_layout.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace lorikeet::nn {
namespace {

constexpr std::int64_t kAlignment = 512;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The block for the next unit: the largest power of two that those to come fill, or one that the unit fits.
std::int64_t room_for(std::int64_t unit, std::int64_t to_come) {
  const auto filled = std::bit_floor(static_cast<std::uint64_t>(to_come));
  return static_cast<std::int64_t>(std::max(filled, std::bit_ceil(static_cast<std::uint64_t>(unit))));
}

}  // namespace

HostLayout host_layout(const std::vector<std::int64_t>& unit_bytes) {
  HostLayout out;
  std::int64_t to_come = std::accumulate(unit_bytes.begin(), unit_bytes.end(), std::int64_t{0});
  std::int64_t room = 0;
  for (const std::int64_t bytes : unit_bytes) {
    const std::int64_t begin = out.block_bytes.empty() ? 0 : aligned(out.block_bytes.back());
    if (out.block_bytes.empty() || begin + bytes > room) {
      room = room_for(bytes, to_come);
      out.places.push_back({.block = out.block_bytes.size()});
      out.block_bytes.push_back(bytes);
    } else {
      out.places.push_back({.block = out.block_bytes.size() - 1, .offset_bytes = begin});
      out.block_bytes.back() = begin + bytes;
    }
    to_come -= bytes;
  }
  return out;
}

}  // namespace lorikeet::nn
