#pragma once

#include <cstddef>

#include "probe/sources.h"

namespace lorikeet::probe {

/// How the GPUs of a run reach each other on this machine.
struct PeerPaths {
  std::size_t pairs = 0;
  std::size_t nvlink = 0;   ///< pairs that NVLink joins
  std::size_t pcie = 0;     ///< other pairs with peer access, by the driver
  std::size_t none = 0;     ///< pairs without peer access
  std::size_t unknown = 0;  ///< pairs that the driver doesn't report on
};

PeerPaths peer_paths(const GpuFacts& gpus);

}  // namespace lorikeet::probe
