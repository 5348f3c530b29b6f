#pragma once

#include <string>
#include <vector>

#include "probe/finding.h"
#include "probe/sources.h"

// The passive checks: each is a function of the sources alone. docs/doctor.md has a row for each.
namespace lorikeet::probe {

/// The runs that a check applies to.
enum class Scope {
  kEveryRun,
  kGpuRun,
  kSeveralGpus,  ///< several ranks on GPUs, of this machine or of several: NCCL is used
};

struct Check {
  const char* name;
  Scope scope;
  const char* well;  ///< the text of its row when it finds nothing
  Findings (*look)(const Sources& sources);
};

const std::vector<Check>& passive_checks();

/// The findings of all checks that apply, in their order; with `with_well` also a row for each check that
/// finds nothing.
Findings run_checks(const Sources& sources, bool with_well);

// --- Helpers of several checks.

/// The variable if it is set, else nullptr.
const Variable* find_variable(const Sources& sources, const std::string& name);

/// Whether a switch is on as CUDA reads it: set, and neither "" nor "0".
bool switched_on(const Variable* variable);

/// The number at the beginning of the value, 0 where there is none ("true" is 0): how NCCL reads its
/// switches.
long long nccl_number(const Variable* variable);

/// The command that removes a variable: "unset NAME", or which line to delete from its file.
std::string drop_command(const std::string& name, const Variable& variable);

/// "NAME=value", with the file that sets it unless it is the environment.
std::string shown(const std::string& name, const Variable& variable);

// --- The checks, by file.

// environment_checks.cpp
Findings check_launch_blocking(const Sources& sources);
Findings check_debug_switches(const Sources& sources);
Findings check_memory_caching(const Sources& sources);
Findings check_tf32_override(const Sources& sources);
Findings check_visible_devices(const Sources& sources);

// cpu_checks.cpp
Findings check_threads(const Sources& sources);
Findings check_cpu_quota(const Sources& sources);
Findings check_thread_binding(const Sources& sources);

// gpu_checks.cpp
Findings check_gpus(const Sources& sources);
Findings check_cuda_start(const Sources& sources);
Findings check_driver(const Sources& sources);
Findings check_architecture(const Sources& sources);
Findings check_ecc(const Sources& sources);
Findings check_throttling(const Sources& sources);
Findings check_pcie_link(const Sources& sources);
Findings check_gpu_sharing(const Sources& sources);

// peer_checks.cpp
Findings check_p2p_disable(const Sources& sources);
Findings check_iommu(const Sources& sources);
Findings check_shm_disable(const Sources& sources);
Findings check_shared_memory(const Sources& sources);

// nccl_checks.cpp
Findings check_nccl_algo(const Sources& sources);
Findings check_nccl_proto(const Sources& sources);
Findings check_nccl_debug(const Sources& sources);

// network_checks.cpp
Findings check_socket_interface(const Sources& sources);
Findings check_infiniband(const Sources& sources);
Findings check_ib_disable(const Sources& sources);
Findings check_ib_hca(const Sources& sources);
Findings check_fi_provider(const Sources& sources);

// disk_checks.cpp
Findings check_output_folder(const Sources& sources);

}  // namespace lorikeet::probe
