#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "device/device.h"
#include "device/inventory.h"
#include "device/topology.h"
#include "device/visible.h"
#include "precision/policy.h"
#include "probe/build_facts.h"
#include "probe/network_facts.h"

// The input of the passive checks, read once before they run. A test fills it in by hand, or reads it from a
// folder with the layout of a machine's root.
namespace lorikeet::probe {

/// The part of the machine that a run uses.
struct RunNeeds {
  std::vector<device::CudaDevice> devices;  ///< the GPUs of this machine that it takes; none: the CPU
  int ranks = 1;                            ///< processes on this machine
  std::optional<int> nodes;                 ///< machines; empty when not known
  bool cpu_is_meant = false;                ///< device=cpu: unused GPUs are no finding
  int threads = 1;                          ///< of each process, as libtorch will start them
  bool deterministic = false;
  precision::Policy policy;
  std::filesystem::path output_dir = ".";

  bool cuda() const { return !devices.empty(); }
};

/// The value of a variable, and the file that sets it; "" for the process's environment.
struct Variable {
  std::string value;
  std::string file;
};

/// Variables by name: the environment's, and below them those of NCCL's configuration files.
using Variables = std::map<std::string, Variable>;

struct CpuFacts {
  std::size_t allowed = 0;      ///< CPUs that this process may run on; 0 when not reported
  std::optional<double> quota;  ///< CPUs' worth of time that its control group may use
};

/// A folder that a run writes to; the members describe its nearest existing parent.
struct FolderFacts {
  enum class Kind { kLocal, kNetwork, kFuse, kMemory, kContainerLayer };
  std::filesystem::path folder;
  Kind kind = Kind::kLocal;
  std::string filesystem;  ///< "NFS", "tmpfs"; "" for one that needs no mention
  std::optional<std::uint64_t> free_bytes;
  std::string problem;  ///< why it can't be written to; "" when it can
};

struct SharedMemoryFacts {
  std::uint64_t total_bytes = 0, free_bytes = 0;
};

/// How a GPU of the inventory reaches other PCI devices.
struct PciFacts {
  std::string iommu_domain;  ///< "identity", "DMA", "DMA-FQ"; "" without IOMMU or when not reported
  /// A bridge above it redirects traffic between peers upstream; empty when only root may read that.
  std::optional<bool> acs_redirects;
};

struct GpuFacts {
  device::Inventory inventory;
  device::Topology topology;
  device::VisibleDevices visible;
  std::optional<int> driver_cuda;  ///< newest CUDA version of the driver: 13000 is 13.0
  std::size_t offered = 0;         ///< number of GPUs that CUDA offers, which may be fewer than NVML's
  std::optional<int> start_code;   ///< see device::cuda_start_code
  std::vector<PciFacts> pci;       ///< of each GPU of the inventory, or empty
  std::vector<std::size_t> used;   ///< indexes in the inventory of the GPUs that the run takes
};

struct Sources {
  RunNeeds needs;
  BuildFacts build;
  Variables variables;
  CpuFacts cpu;
  NetworkFacts network;
  std::optional<SharedMemoryFacts> shared_memory;
  FolderFacts output;
  GpuFacts gpus;
};

/// Reads this machine: the process's environment, /proc, /sys, and, if the run uses GPUs or `look_at_gpus` is
/// true, what NVML and the CUDA driver report. Creates no CUDA context. Takes milliseconds, and the time that
/// NVML takes to start.
Sources read_sources(const RunNeeds& needs, bool look_at_gpus);

/// Reads what NVML and the CUDA driver report of this machine's GPUs.
GpuFacts read_gpus(const RunNeeds& needs);

/// The variables of the environment (each "NAME=value") and, for those it doesn't set, of NCCL's files under
/// `root`: NCCL_CONF_FILE, ~/.nccl.conf, /etc/nccl.conf. The first file that sets a variable counts.
Variables read_variables(const char* const* environment, const std::filesystem::path& root);

/// Reads proc/self/status and the control groups, version 2 or 1, under `root`.
CpuFacts read_cpu(const std::filesystem::path& root);

FolderFacts read_folder(const std::filesystem::path& folder);

/// Reads the facts of each GPU of the inventory from `root`/sys.
std::vector<PciFacts> read_pci(const std::filesystem::path& root, const device::Inventory& inventory);

/// Indexes in the inventory of the GPUs that the run takes, each once, ascending.
std::vector<std::size_t> used_gpus(const device::Inventory& inventory, const RunNeeds& needs);

}  // namespace lorikeet::probe
