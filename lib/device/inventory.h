#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/nvml.h"
#include "device/pci_address.h"

namespace lorikeet::device {

/// A field that the driver didn't tell, and what it said instead.
struct Untold {
  std::string field;
  std::string reason;
};

struct GpuProcess {
  unsigned pid = 0;
  std::optional<std::string> name;
  std::optional<std::uint64_t> used_bytes;
};

/// One NVLink of a GPU that is up.
struct NvLink {
  enum class Peer { kGpu, kSwitch, kOther };
  unsigned link = 0;
  std::optional<double> gb_per_second;  ///< one direction; by the link's version
  std::optional<Peer> peer;
  std::optional<PciAddress> peer_address;
};

/// A slice of a GPU in MIG mode, which CUDA takes for a device.
struct MigDevice {
  std::string uuid;
  std::optional<std::string> name;
  std::optional<std::uint64_t> memory_total_bytes, memory_free_bytes;
};

struct EccErrors {
  std::optional<std::uint64_t> corrected, uncorrected;  ///< since the driver was loaded
  std::optional<std::uint64_t> corrected_of_life, uncorrected_of_life;
};

/// A GPU as NVML describes it. A field is empty where the driver didn't tell; `untold` has its reason.
struct GpuInfo {
  unsigned nvml_index = 0;
  std::optional<PciAddress> pci;
  std::optional<std::string> name, uuid;
  std::optional<std::uint64_t> memory_total_bytes, memory_free_bytes, memory_used_bytes;
  /// Those that compute or draw on it. Empty and in `untold` where the driver doesn't list them; a container
  /// sees only its own.
  std::vector<GpuProcess> processes;
  std::optional<int> compute_major, compute_minor;
  std::vector<int> cpus, numa_nodes;  ///< nearest ones; empty where the driver doesn't tell
  std::optional<unsigned> pcie_width, pcie_width_max, pcie_generation, pcie_generation_max;
  std::vector<NvLink> nvlinks;
  std::optional<bool> mig;  ///< MIG mode is on
  std::vector<MigDevice> mig_devices;
  std::optional<bool> ecc;
  EccErrors ecc_errors;
  /// Why clocks are lower than they could be, in words ("power cap", "thermal (hardware)"); idle isn't one.
  std::optional<std::vector<std::string>> throttle_reasons;
  std::vector<Untold> untold;

  /// "NVIDIA A100-SXM4-80GB (GPU-..., 00000000:41:00.0)", with what is known.
  std::string description() const;
};

/// A GPU that the driver counts but that stopped answering.
struct LostGpu {
  unsigned nvml_index = 0;
  std::string description;  ///< what it said of itself before, or ""
  std::string reason;
};

struct Inventory {
  std::vector<GpuInfo> gpus;  ///< by PCI address; those without one last
  std::vector<LostGpu> lost;
  unsigned others = 0;  ///< that this process may not open
  std::optional<std::string> driver_version;
  /// Why nothing can be told of this machine's GPUs; empty where NVML answered (also if there are none).
  std::string absent;
};

/// Reads every GPU. An error of one call costs that field alone; a GPU that is lost meanwhile is listed in
/// `lost` and the others stay. Throws nothing of its own.
Inventory read_inventory(const nvml::Session& session);

/// An inventory without GPUs that says why.
Inventory no_inventory(std::string why);

}  // namespace lorikeet::device
