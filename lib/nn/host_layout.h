#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lorikeet::nn {

/// Where units of weights lie in blocks of the host's memory.
struct HostLayout {
  struct Place {
    std::size_t block = 0;
    std::int64_t offset_bytes = 0;
  };
  std::vector<Place> places;              ///< of each unit
  std::vector<std::int64_t> block_bytes;  ///< that are used
};

/// Puts units of so many bytes, each in one piece that starts at a multiple of 512, in their order into
/// blocks that take the least where memory comes in powers of two, as libtorch pins it: a layer of 525 MiB in
/// a block of its own would take a GiB.
HostLayout host_layout(const std::vector<std::int64_t>& unit_bytes);

}  // namespace lorikeet::nn
