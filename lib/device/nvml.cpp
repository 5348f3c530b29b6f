#include "device/nvml.h"

#include <dlfcn.h>

#include <initializer_list>
#include <utility>

namespace lorikeet::device::nvml {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";

// The first of the names that the library has: newer drivers come first in `names`.
template <typename... Arguments>
void find(void* library, Calls::Call<Arguments...>& call, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* symbol = dlsym(library, name)) {
      call = reinterpret_cast<int (*)(Arguments...)>(symbol);
      return;
    }
  }
}

// Version 2 counts the driver's reserve apart; in the first one it is in use: up to a gigabyte on large
// cards.
struct MemoryV2 {
  unsigned version;
  unsigned long long total_bytes, reserved_bytes, free_bytes, used_bytes;
};

void find_memory(void* library, Calls& c) {
  Calls::Call<Handle, MemoryV2*> second;
  find(library, second, {"nvmlDeviceGetMemoryInfo_v2"});
  if (!second) return find(library, c.memory, {"nvmlDeviceGetMemoryInfo"});
  c.memory = [second](Handle handle, Memory* memory) {
    constexpr unsigned kVersion = sizeof(MemoryV2) | 2U << 24U;
    MemoryV2 info{.version = kVersion};
    const int code = second(handle, &info);
    *memory = {info.total_bytes, info.free_bytes, info.used_bytes};
    return code;
  };
}

void find_system_calls(void* library, Calls& c) {
  find(library, c.init, {"nvmlInit_v2"});
  find(library, c.shutdown, {"nvmlShutdown"});
  if (void* symbol = dlsym(library, "nvmlErrorString"))
    c.error_string = reinterpret_cast<const char* (*)(int)>(symbol);
  find(library, c.driver_version, {"nvmlSystemGetDriverVersion"});
  find(library, c.process_name, {"nvmlSystemGetProcessName"});
  find(library, c.count, {"nvmlDeviceGetCount_v2"});
  find(library, c.handle_by_index, {"nvmlDeviceGetHandleByIndex_v2"});
}

void find_device_calls(void* library, Calls& c) {
  find(library, c.name, {"nvmlDeviceGetName"});
  find(library, c.uuid, {"nvmlDeviceGetUUID"});
  find(library, c.pci_info, {"nvmlDeviceGetPciInfo_v3"});
  find_memory(library, c);
  // _v2 has the same layout; the one before it has not.
  find(library, c.compute_processes,
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
  find(library, c.graphics_processes,
       {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"});
  find(library, c.compute_capability, {"nvmlDeviceGetCudaComputeCapability"});
  find(library, c.cpu_affinity, {"nvmlDeviceGetCpuAffinity"});
  find(library, c.memory_affinity, {"nvmlDeviceGetMemoryAffinity"});
  find(library, c.mig_mode, {"nvmlDeviceGetMigMode"});
  find(library, c.mig_count_max, {"nvmlDeviceGetMaxMigDeviceCount"});
  find(library, c.mig_handle, {"nvmlDeviceGetMigDeviceHandleByIndex"});
  find(library, c.ecc_mode, {"nvmlDeviceGetEccMode"});
  find(library, c.ecc_errors, {"nvmlDeviceGetTotalEccErrors"});
  find(library, c.throttle_reasons,
       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
}

void find_link_calls(void* library, Calls& c) {
  find(library, c.link_width, {"nvmlDeviceGetCurrPcieLinkWidth"});
  find(library, c.link_width_max, {"nvmlDeviceGetMaxPcieLinkWidth"});
  find(library, c.link_generation, {"nvmlDeviceGetCurrPcieLinkGeneration"});
  find(library, c.link_generation_max, {"nvmlDeviceGetMaxPcieLinkGeneration"});
  find(library, c.nvlink_capability, {"nvmlDeviceGetNvLinkCapability"});
  find(library, c.nvlink_state, {"nvmlDeviceGetNvLinkState"});
  find(library, c.nvlink_version, {"nvmlDeviceGetNvLinkVersion"});
  find(library, c.nvlink_remote_type, {"nvmlDeviceGetNvLinkRemoteDeviceType"});
  find(library, c.nvlink_remote, {"nvmlDeviceGetNvLinkRemotePciInfo_v2"});
  find(library, c.common_ancestor, {"nvmlDeviceGetTopologyCommonAncestor"});
  find(library, c.p2p_status, {"nvmlDeviceGetP2PStatus"});
}

}  // namespace

std::optional<Calls> load(std::string& why) {
  void* library = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    why = std::string("no NVIDIA driver is installed (") + kLibrary + " can't be loaded)";
    return std::nullopt;
  }
  Calls calls;
  find_system_calls(library, calls);
  find_device_calls(library, calls);
  find_link_calls(library, calls);
  return calls;
}

std::unique_ptr<Session> Session::open(Calls calls, std::string& why) {
  std::unique_ptr<Session> session(new Session(std::move(calls)));
  const int code = status(session->calls_.init);
  if (code == kSuccess) return session;
  why = "the NVIDIA driver's library refuses to start: " + session->reason(code);
  session->calls_.shutdown = nullptr;  // what never started isn't stopped
  return nullptr;
}

Session::~Session() { status(calls_.shutdown); }

std::string Session::reason(int code) const {
  if (code == kFunctionNotFound && !calls_.error_string) return "the driver's library lacks the function";
  const char* text = calls_.error_string ? calls_.error_string(code) : nullptr;
  return std::string(text != nullptr ? text : "failed") + " (NVML error " + std::to_string(code) + ")";
}

std::unique_ptr<Session> open_driver(std::string& why) {
  auto calls = load(why);
  return calls ? Session::open(std::move(*calls), why) : nullptr;
}

}  // namespace lorikeet::device::nvml
