#include "probe/checks.h"

#include <cstdlib>

namespace lorikeet::probe {
namespace {

bool applies(Scope scope, const RunNeeds& needs) {
  switch (scope) {
    case Scope::kEveryRun: return true;
    case Scope::kGpuRun: return needs.cuda();
    case Scope::kSeveralGpus: return needs.cuda() && (needs.ranks > 1 || needs.nodes.value_or(1) > 1);
  }
  return false;
}

}  // namespace

const std::vector<Check>& passive_checks() {
  using enum Scope;
  static const std::vector<Check> checks = {
      {"CUDA_LAUNCH_BLOCKING", kEveryRun, "not set", check_launch_blocking},
      {"CUDA debugging", kGpuRun, "no switch of it is set", check_debug_switches},
      {"PYTORCH_NO_CUDA_MEMORY_CACHING", kGpuRun, "not set", check_memory_caching},
      {"NVIDIA_TF32_OVERRIDE", kGpuRun, "not set", check_tf32_override},
      {"CUDA_VISIBLE_DEVICES", kEveryRun, "names GPUs that are here, or isn't set", check_visible_devices},
      {"threads", kEveryRun, "", check_threads},
      {"CPU quota", kEveryRun, "none, or enough for all threads", check_cpu_quota},
      {"thread binding", kEveryRun, "none is asked for", check_thread_binding},
      {"GPUs", kEveryRun, "", check_gpus},
      {"CUDA", kEveryRun, "", check_cuda_start},
      {"driver", kGpuRun, "new enough for this build", check_driver},
      {"architecture", kGpuRun, "this build has kernels for every GPU", check_architecture},
      {"ECC", kGpuRun, "no uncorrected error is counted", check_ecc},
      {"throttling", kGpuRun, "no clock is held down", check_throttling},
      {"PCIe link", kGpuRun, "as wide as it can be", check_pcie_link},
      {"other processes", kGpuRun, "none holds memory of the GPUs", check_gpu_sharing},
      {"NCCL_P2P_DISABLE", kSeveralGpus, "not set", check_p2p_disable},
      {"IOMMU and ACS", kSeveralGpus, "nothing known stands between the GPUs", check_iommu},
      {"NCCL_SHM_DISABLE", kSeveralGpus, "not set", check_shm_disable},
      {"/dev/shm", kSeveralGpus, "large enough", check_shared_memory},
      {"NCCL_ALGO", kSeveralGpus, "not set: NCCL chooses", check_nccl_algo},
      {"NCCL_PROTO", kSeveralGpus, "not set: NCCL chooses", check_nccl_proto},
      {"NCCL_DEBUG", kSeveralGpus, "quiet", check_nccl_debug},
      {"NCCL_SOCKET_IFNAME", kSeveralGpus, "names an interface that is up, or isn't set",
       check_socket_interface},
      {"InfiniBand", kSeveralGpus, "", check_infiniband},
      {"NCCL_IB_DISABLE", kSeveralGpus, "not set", check_ib_disable},
      {"NCCL_IB_HCA", kSeveralGpus, "names adapters that are here, or isn't set", check_ib_hca},
      {"FI_PROVIDER", kSeveralGpus, "fits this machine, or isn't set", check_fi_provider},
      {"output folder", kEveryRun, "", check_output_folder},
  };
  return checks;
}

Findings run_checks(const Sources& sources, bool with_well) {
  Findings all;
  for (const Check& check : passive_checks()) {
    if (!applies(check.scope, sources.needs)) continue;
    Findings found = check.look(sources);
    if (found.empty() && with_well) found.emplace_back(check.name, Severity::kOk, check.well);
    for (Finding& finding : found) {
      if (with_well || finding.severity > Severity::kOk) all.push_back(std::move(finding));
    }
  }
  return all;
}

const Variable* find_variable(const Sources& sources, const std::string& name) {
  const auto found = sources.variables.find(name);
  return found == sources.variables.end() ? nullptr : &found->second;
}

bool switched_on(const Variable* variable) {
  return variable != nullptr && !variable->value.empty() && variable->value != "0";
}

long long nccl_number(const Variable* variable) {
  return variable == nullptr ? 0 : std::strtoll(variable->value.c_str(), nullptr, 0);
}

std::string drop_command(const std::string& name, const Variable& variable) {
  return variable.file.empty() ? "unset " + name : "remove the line " + name + " from " + variable.file;
}

std::string shown(const std::string& name, const Variable& variable) {
  return name + "=" + variable.value + (variable.file.empty() ? "" : " (" + variable.file + ")");
}

}  // namespace lorikeet::probe
