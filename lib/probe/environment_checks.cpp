// Variables that CUDA and libtorch read.
#include "base/strings.h"
#include "probe/checks.h"

namespace lorikeet::probe {
namespace {

struct DebugSwitch {
  const char* name;
  const char* effect;
};
constexpr DebugSwitch kDebugSwitches[] = {
    {"CUDA_INJECTION64_PATH",
     "loads a tool (compute-sanitizer, Nsight) into every CUDA program: it may slow each kernel many times"},
    {"CUDA_FORCE_PTX_JIT",
     "throws away the compiled kernels and compiles anew at start; what has no PTX for the card fails"},
    {"CUDA_CACHE_DISABLE", "kernels that are compiled at start are compiled again at every start"},
    {"CUDA_DEVICE_WAITS_ON_EXCEPTION", "a failing kernel halts for a debugger, so that the run hangs"}};

}  // namespace

Findings check_launch_blocking(const Sources& sources) {
  constexpr const char* kName = "CUDA_LAUNCH_BLOCKING";
  const Variable* variable = find_variable(sources, kName);
  if (!switched_on(variable)) return {};
  const std::string mend = drop_command(kName, *variable);
  if (!sources.needs.cuda()) {
    return {
        {kName, Severity::kNote,
         shown(kName, *variable) + " changes nothing on a CPU; on GPUs it makes runs several times slower",
         mend}};
  }
  return {
      {kName, Severity::kWarning,
       shown(kName, *variable) +
           ": the host waits for every kernel before it starts the next one, which makes runs several times "
           "slower",
       mend}};
}

Findings check_debug_switches(const Sources& sources) {
  Findings found;
  for (const DebugSwitch& one : kDebugSwitches) {
    const Variable* variable = find_variable(sources, one.name);
    if (!switched_on(variable)) continue;
    found.emplace_back("CUDA debugging", Severity::kWarning, shown(one.name, *variable) + ": " + one.effect,
                       drop_command(one.name, *variable));
  }
  return found;
}

Findings check_memory_caching(const Sources& sources) {
  constexpr const char* kName = "PYTORCH_NO_CUDA_MEMORY_CACHING";
  const Variable* variable = find_variable(sources, kName);
  if (variable == nullptr) return {};  // libtorch asks only whether it is set
  return {
      {kName, Severity::kWarning,
       shown(kName, *variable) +
           ": every tensor is allocated by the driver, which waits for the GPU each time; any value counts, "
           "0 too",
       drop_command(kName, *variable)}};
}

Findings check_tf32_override(const Sources& sources) {
  constexpr const char* kName = "NVIDIA_TF32_OVERRIDE";
  const Variable* variable = find_variable(sources, kName);
  if (variable == nullptr || variable->value.empty()) return {};
  const precision::Policy& policy = sources.needs.policy;
  const bool forbids = variable->value == "0";
  const bool tf32 = policy.matmul == config::Matmul::kTf32;
  if (policy.compute == DType::kF32 && tf32 == forbids) {
    return {{kName, Severity::kUnfit,
             shown(kName, *variable) + " has the libraries multiply " + (forbids ? "exactly" : "in TF32") +
                 ", against the run's precision policy (" + (tf32 ? "TF32" : "exact fp32") + ")",
             drop_command(kName, *variable)}};
  }
  return {{kName, Severity::kNote,
           shown(kName, *variable) + " doesn't change this run's products, which are in " +
               std::string(dtype_name(policy.compute)),
           drop_command(kName, *variable)}};
}

Findings check_visible_devices(const Sources& sources) {
  constexpr const char* kName = "CUDA_VISIBLE_DEVICES";
  const GpuFacts& gpus = sources.gpus;
  const Variable* variable = find_variable(sources, kName);
  if (variable == nullptr) return {};
  if (gpus.inventory.gpus.empty())
    return {{kName, Severity::kNote, shown(kName, *variable) + ", and no GPU is known of here"}};
  if (!gpus.visible.stopped.empty()) {
    return {{kName, Severity::kWarning,
             shown(kName, *variable) + ": " + gpus.visible.stopped +
                 ", and CUDA offers only what stands before it (" +
                 std::to_string(gpus.visible.devices.size()) + " of " +
                 std::to_string(gpus.inventory.gpus.size()) + " GPUs)",
             "export CUDA_VISIBLE_DEVICES with numbers or UUIDs that `lorikeet topo` lists"}};
  }
  if (gpus.visible.devices.empty()) {
    return {{kName, Severity::kNote,
             "it hides all " + std::to_string(gpus.inventory.gpus.size()) + " GPUs of this machine",
             drop_command(kName, *variable)}};
  }
  return {};
}

}  // namespace lorikeet::probe
