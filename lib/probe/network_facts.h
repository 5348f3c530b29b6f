#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lorikeet::probe {

struct NetworkInterface {
  std::string name;
  bool up = false;
};

/// A port of an adapter for remote memory access, as the kernel has it in class/infiniband.
struct FabricPort {
  std::string adapter;  ///< "mlx5_0"
  std::string port;     ///< "1"
  std::string driver;   ///< "mlx5_core", "efa"; "" where not told
  bool active = false;
  bool infiniband = false;  ///< else Ethernet (RoCE), or EFA's own
  bool verbs = true;        ///< of a link layer that NCCL drives by itself; EFA's takes a plugin
};

struct NetworkFacts {
  std::optional<std::vector<NetworkInterface>> interfaces;  ///< empty where the kernel doesn't tell
  std::vector<FabricPort> fabric;
  bool verbs_devices = false;  ///< programs can open the adapters: /dev/infiniband/uverbs*
  bool verbs_library = false;  ///< libibverbs.so.1, which NCCL loads
  bool net_plugin = false;     ///< libnccl-net.so or libnccl-net-ofi.so, by which NCCL drives EFA
  std::optional<std::uint64_t> locked_memory_bytes;  ///< most that may be locked; empty: no limit

  bool infiniband_active() const;
  bool has_efa() const;
};

/// From sys/class/net, sys/class/infiniband, dev/infiniband and proc/self/limits under `root`; the library is
/// looked for in this process's search path, where there is an adapter.
NetworkFacts read_network(const std::filesystem::path& root);

}  // namespace lorikeet::probe
