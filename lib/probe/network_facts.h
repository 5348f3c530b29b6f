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

/// A port of an RDMA adapter, from the kernel's class/infiniband.
struct FabricPort {
  std::string adapter;  ///< "mlx5_0"
  std::string port;     ///< "1"
  std::string driver;   ///< "mlx5_core", "efa"; "" when not reported
  bool active = false;
  bool infiniband = false;  ///< else Ethernet (RoCE) or EFA
  bool verbs = true;        ///< NCCL supports its link layer itself; EFA needs a plugin
};

struct NetworkFacts {
  std::optional<std::vector<NetworkInterface>> interfaces;  ///< empty when the kernel doesn't report them
  std::vector<FabricPort> fabric;
  bool verbs_devices = false;  ///< programs can open the adapters: /dev/infiniband/uverbs*
  bool verbs_library = false;  ///< libibverbs.so.1, which NCCL loads
  bool net_plugin = false;     ///< libnccl-net.so or libnccl-net-ofi.so, NCCL's plugin for EFA
  std::optional<std::uint64_t> locked_memory_bytes;  ///< limit of locked memory; empty: no limit

  bool infiniband_active() const;
  bool has_efa() const;
};

/// Reads sys/class/net, sys/class/infiniband, dev/infiniband and proc/self/limits under `root`. Where there
/// is an adapter, the libraries are searched for in this process's search path.
NetworkFacts read_network(const std::filesystem::path& root);

}  // namespace lorikeet::probe
