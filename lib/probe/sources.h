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

// What the passive checks look at. All of it is read once, before any check runs; a test fills it in by hand
// or reads it from a folder that looks like a machine's root.
namespace lorikeet::probe {

/// What a run will use of the machine.
struct RunNeeds {
  std::vector<device::CudaDevice> devices;  ///< the GPUs of this machine that it takes; none: the CPU
  int ranks = 1;                            ///< processes on this machine
  std::optional<int> nodes;                 ///< machines; empty where that isn't known
  bool cpu_is_meant = false;                ///< device=cpu: GPUs that aren't used are no surprise
  int threads = 1;                          ///< of each process, as libtorch will start them
  bool deterministic = false;
  bool own_kernels = true;  ///< whether it needs CUDA kernels of this build beside libtorch's
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
  std::size_t allowed = 0;      ///< CPUs that this process may run on; 0 where not told
  std::optional<double> quota;  ///< CPUs' worth of time that its control group may use
};

/// A folder that a run writes to; what is told is of its nearest existing parent.
struct FolderFacts {
  enum class Kind { kLocal, kNetwork, kFuse, kMemory, kContainerLayer };
  std::filesystem::path folder;
  Kind kind = Kind::kLocal;
  std::string filesystem;  ///< "NFS", "tmpfs"; "" for one that needs no mention
  std::optional<std::uint64_t> free_bytes;
  std::string problem;  ///< why nothing can be written there; "" where it can
};

struct SharedMemoryFacts {
  std::uint64_t total_bytes = 0, free_bytes = 0;
};

/// How the kernel lets a GPU of the inventory reach other PCI devices.
struct PciFacts {
  std::string iommu_domain;  ///< "identity", "DMA", "DMA-FQ"; "" without IOMMU or where not told
  std::optional<bool>
      acs_redirects;  ///< a bridge above it sends peers' traffic up; empty: only root may look
};

struct GpuFacts {
  device::Inventory inventory;
  device::Topology topology;
  device::VisibleDevices visible;
  std::optional<int> driver_cuda;  ///< newest CUDA that the driver runs: 13000 is 13.0
  std::size_t offered = 0;         ///< by CUDA, however many NVML knows
  std::optional<int> start_code;   ///< see device::cuda_start_code
  std::vector<PciFacts> pci;       ///< of each GPU of the inventory, or none
  std::vector<std::size_t> used;   ///< those of the inventory that the run takes
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

/// Reads this machine: the process's environment, /proc, /sys, and of the GPUs (unless the run uses none and
/// `look_at_gpus` is false) what NVML and the CUDA driver tell; no context is made on any. Takes
/// milliseconds, and what NVML takes to start.
Sources read_sources(const RunNeeds& needs, bool look_at_gpus);

/// Of this machine: what NVML and the CUDA driver tell.
GpuFacts read_gpus(const RunNeeds& needs);

/// The environment's variables (each "NAME=value"), and of NCCL's files under `root` (NCCL_CONF_FILE,
/// ~/.nccl.conf, /etc/nccl.conf, the first that sets one counts) those that it doesn't have.
Variables read_variables(const char* const* environment, const std::filesystem::path& root);

/// From proc/self/status and the control groups, version 2 or 1, of a process seen under `root`.
CpuFacts read_cpu(const std::filesystem::path& root);

FolderFacts read_folder(const std::filesystem::path& folder);

/// From `root`/sys, of each GPU of the inventory.
std::vector<PciFacts> read_pci(const std::filesystem::path& root, const device::Inventory& inventory);

/// Those of the inventory that the run takes, each once, ascending.
std::vector<std::size_t> used_gpus(const device::Inventory& inventory, const RunNeeds& needs);

}  // namespace lorikeet::probe
