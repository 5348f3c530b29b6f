// The cards that a run uses, as their driver tells.
#include <algorithm>

#include "base/strings.h"
#include "probe/checks.h"

namespace lorikeet::probe {
namespace {

using device::GpuInfo;

std::vector<const GpuInfo*> used(const Sources& sources) {
  std::vector<const GpuInfo*> gpus;
  gpus.reserve(sources.gpus.used.size());
  for (const std::size_t index : sources.gpus.used) gpus.push_back(&sources.gpus.inventory.gpus.at(index));
  return gpus;
}

std::string select_by(const GpuInfo& gpu) {
  return gpu.uuid ? *gpu.uuid : gpu.pci ? gpu.pci->text() : std::to_string(gpu.nvml_index);
}

// First driver of each CUDA major version on Linux; source: CUDA toolkit release notes, minor version
// compatibility.
const char* first_driver(int major) {
  switch (major) {
    case 11: return "450.80.02";
    case 12: return "525.60.13";
    case 13: return "580.65.06";
    default: return nullptr;
  }
}

}  // namespace

Findings check_gpus(const Sources& sources) {
  constexpr const char* kName = "GPUs";
  const device::Inventory& inventory = sources.gpus.inventory;
  Findings found;
  for (const device::LostGpu& lost : inventory.lost) {
    found.emplace_back(kName, Severity::kWarning,
                       "the GPU with NVML's number " + std::to_string(lost.nvml_index) +
                           (lost.description.empty() ? "" : ", " + lost.description + ",") +
                           " has stopped answering: " + lost.reason,
                       "nvidia-smi --gpu-reset -i " + std::to_string(lost.nvml_index) + ", or restart");
  }
  if (inventory.others > 0)
    found.emplace_back(
        kName, Severity::kNote,
        std::to_string(inventory.others) + " of this machine may not be opened by this process");
  if (!sources.needs.cuda()) {
    const std::string here = !inventory.gpus.empty()
                                 ? "; " + std::to_string(inventory.gpus.size()) + " are here"
                             : inventory.absent.empty() ? ""
                                                        : ": " + inventory.absent;
    found.emplace_back(kName, Severity::kOk, "none is used" + here);
    return found;
  }
  if (!inventory.absent.empty()) {
    found.emplace_back(kName, Severity::kNote,
                       "NVML reports nothing of them, so that most checks of GPUs have nothing to look at: " +
                           inventory.absent);
    return found;
  }
  for (const GpuInfo* gpu : used(sources)) {
    found.emplace_back(kName, Severity::kOk, gpu->description());
    if (gpu->mig == true && sources.needs.ranks > 1) {
      found.emplace_back(kName, Severity::kUnfit,
                         gpu->description() + " is in MIG mode: NCCL joins no slices into a run on several",
                         "nvidia-smi -i " + select_by(*gpu) + " -mig 0");
    }
  }
  return found;
}

namespace {

struct StartTrouble {
  int code;
  const char* sentence;
  const char* command;
};
// Source: the CUDA driver API's CUresult.
constexpr int kStarted = 0, kNoDevice = 100;
constexpr StartTrouble kStartTroubles[] = {
    {34, "a stub of libcuda.so.1 is loaded in place of the driver's",
     "take the toolkit's stubs out of LD_LIBRARY_PATH"},
    {kNoDevice, "it says that there is no device",
     "nvidia-smi -L; in MIG mode slices have to be made: nvidia-smi mig -cgi"},
    {802, "the system isn't ready: GPUs behind an NVSwitch need the fabric manager",
     "systemctl start nvidia-fabricmanager, of the driver's version"},
    {803, "the driver's kernel module and its library are of different versions",
     "restart the machine, or the container with the host's driver"},
    {999, "an unknown error, most often that the kernel module nvidia-uvm isn't loaded",
     "nvidia-modprobe -u -c=0"}};

}  // namespace

// Otherwise device=auto would train on the CPU without a word. A driver that is there and doesn't start tells
// nothing of its GPUs, NVML often neither.
Findings check_cuda_start(const Sources& sources) {
  constexpr const char* kName = "CUDA";
  const GpuFacts& gpus = sources.gpus;
  const std::size_t here = gpus.visible.devices.size();
  if (gpus.offered > 0 && sources.build.cuda != 0) return {{kName, Severity::kOk, "starts"}};
  const int code_of_start = gpus.start_code.value_or(kNoDevice);
  if (here == 0 && (sources.build.cuda == 0 || code_of_start == kStarted || code_of_start == kNoDevice))
    return {{kName, Severity::kOk, "there is no GPU for it to see"}};
  if (sources.needs.cpu_is_meant) return {{kName, Severity::kOk, "isn't needed: device=cpu"}};
  const std::string cards = here == 0   ? "NVIDIA's driver is here, but "
                            : here == 1 ? "1 GPU is here, but "
                                        : std::to_string(here) + " GPUs are here, but ";
  const char* otherwise = "; or device=cpu, if that is what you want";
  if (sources.build.cuda == 0) {
    return {{kName, Severity::kWarning, cards + "this build is without CUDA: runs are on the CPU",
             std::string("build it with -DLORIKEET_CUDA=ON") + otherwise}};
  }
  if (!gpus.start_code) {
    return {
        {kName, Severity::kUnfit, cards + "the driver's library libcuda.so.1 can't be loaded",
         std::string(
             "install the driver's CUDA part; in a container NVIDIA_DRIVER_CAPABILITIES=compute,utility") +
             otherwise}};
  }
  const std::string code = " (CUDA error " + std::to_string(*gpus.start_code) + ")";
  for (const StartTrouble& known : kStartTroubles) {
    if (known.code == *gpus.start_code)
      return {{kName, Severity::kUnfit, cards + "CUDA doesn't start: " + known.sentence + code,
               std::string(known.command) + otherwise}};
  }
  return {{kName, Severity::kUnfit, cards + "CUDA doesn't start" + code,
           std::string("nvidia-smi -q, and the kernel's log (dmesg)") + otherwise}};
}

Findings check_driver(const Sources& sources) {
  constexpr const char* kName = "driver";
  const int needed = sources.build.cuda;
  const auto offered = sources.gpus.driver_cuda;
  if (needed == 0 || !offered) return {};
  const std::string driver =
      "the driver" +
      (sources.gpus.inventory.driver_version ? " " + *sources.gpus.inventory.driver_version : std::string()) +
      " is for CUDA up to " + cuda_version_text(*offered);
  const std::string built = "this build needs CUDA " + cuda_version_text(needed);
  if (*offered / 1000 < needed / 1000) {
    const char* first = first_driver(needed / 1000);
    return {{kName, Severity::kUnfit, driver + ", and " + built + ": nothing will start on the GPU",
             first != nullptr ? "install driver " + std::string(first) + " or newer"
                              : "install the driver that came with that CUDA, or a newer one"}};
  }
  if (*offered < needed) {
    return {{kName, Severity::kNote,
             driver + ", " + built +
                 ": that works within one major version, except for code that has to be "
                 "compiled at start"}};
  }
  return {{kName, Severity::kOk, driver + ", " + built}};
}

Findings check_architecture(const Sources& sources) {
  constexpr const char* kName = "architecture";
  // CUDA 13 dropped all before Turing, and libtorch's kernels with it. Source: CUDA 13.0's release notes.
  constexpr int kDropping = 13000, kLeast = 75;
  const std::vector<std::string>& built = sources.build.architectures;
  Findings found;
  std::vector<std::string> told;
  for (const GpuInfo* gpu : used(sources)) {
    if (!gpu->compute_major || !gpu->compute_minor) continue;
    const std::string capability = std::to_string(*gpu->compute_major) + std::to_string(*gpu->compute_minor);
    if (sources.build.cuda >= kDropping && 10 * *gpu->compute_major + *gpu->compute_minor < kLeast) {
      if (std::count(told.begin(), told.end(), capability) > 0) continue;
      told.push_back(capability);
      found.emplace_back(kName, Severity::kUnfit,
                         gpu->name.value_or("a GPU") + " has compute capability " +
                             std::to_string(*gpu->compute_major) + "." + std::to_string(*gpu->compute_minor) +
                             ", and CUDA " + cuda_version_text(sources.build.cuda) +
                             " runs on 7.5 and later only",
                         "use another card, or device=cpu");
      continue;
    }
    if (built.empty()) continue;
    const bool runs = std::any_of(built.begin(), built.end(), [&](const std::string& architecture) {
      return runs_on(architecture, *gpu->compute_major, *gpu->compute_minor);
    });
    // Once for cards of one kind.
    if (runs || std::count(told.begin(), told.end(), capability) > 0) continue;
    told.push_back(capability);
    found.emplace_back(
        kName, Severity::kUnfit,
        gpu->name.value_or("a GPU") + " has compute capability " + std::to_string(*gpu->compute_major) + "." +
            std::to_string(*gpu->compute_minor) + ", and this build's own kernels are for " +
            join(built, ", "),
        "cmake --preset release -DCMAKE_CUDA_ARCHITECTURES=" + capability + ", and build again");
  }
  return found;
}

Findings check_ecc(const Sources& sources) {
  constexpr const char* kName = "ECC";
  Findings found;
  for (const GpuInfo* gpu : used(sources)) {
    const device::EccErrors& errors = gpu->ecc_errors;
    if (errors.uncorrected.value_or(0) > 0) {
      found.emplace_back(
          kName, Severity::kWarning,
          gpu->description() + " has counted " + std::to_string(*errors.uncorrected) +
              " uncorrected memory errors since its driver was loaded: results may be wrong and "
              "runs may die",
          "nvidia-smi --gpu-reset -i " + select_by(*gpu) + "; if they come back, have the card replaced");
    } else if (errors.uncorrected_of_life.value_or(0) > 0) {
      found.emplace_back(kName, Severity::kNote,
                         gpu->description() + " has counted " + std::to_string(*errors.uncorrected_of_life) +
                             " uncorrected memory errors in its life, none since its driver was loaded",
                         "nvidia-smi -q -d ECC,ROW_REMAPPER -i " + select_by(*gpu));
    }
  }
  return found;
}

Findings check_throttling(const Sources& sources) {
  constexpr const char* kName = "throttling";
  Findings found;
  for (const GpuInfo* gpu : used(sources)) {
    if (!gpu->throttle_reasons || gpu->throttle_reasons->empty()) continue;
    const std::vector<std::string>& reasons = *gpu->throttle_reasons;
    // A card that works hard is held by its power cap; that is how it is meant to be.
    const bool power_alone = reasons.size() == 1 && reasons[0] == "power cap";
    found.emplace_back(kName, power_alone ? Severity::kNote : Severity::kWarning,
                       gpu->description() + " holds its clocks down: " + join(reasons, ", "),
                       "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i " + select_by(*gpu));
  }
  return found;
}

Findings check_pcie_link(const Sources& sources) {
  constexpr const char* kName = "PCIe link";
  Findings found;
  for (const GpuInfo* gpu : used(sources)) {
    // The generation isn't compared: cards at rest lower it.
    if (!gpu->pcie_width || !gpu->pcie_width_max || *gpu->pcie_width >= *gpu->pcie_width_max) continue;
    found.emplace_back(kName, Severity::kWarning,
                       gpu->description() + " has " + std::to_string(*gpu->pcie_width) + " of " +
                           std::to_string(*gpu->pcie_width_max) +
                           " PCIe lanes: copies to and from it are that much slower",
                       "seat the card and its riser anew, or use another slot");
  }
  return found;
}

Findings check_gpu_sharing(const Sources& sources) {
  constexpr const char* kName = "other processes";
  constexpr std::uint64_t kMuch = std::uint64_t{1} << 30;  // a context alone takes less
  Findings found;
  for (const GpuInfo* gpu : used(sources)) {
    if (gpu->memory_used_bytes.value_or(0) < kMuch || gpu->mig == true) continue;
    std::vector<std::string> who;
    who.reserve(gpu->processes.size());
    for (const device::GpuProcess& process : gpu->processes)
      who.push_back(process.name.value_or("process") + " " + std::to_string(process.pid));
    found.emplace_back(kName, Severity::kWarning,
                       gpu->description() + " has " + format_bytes(*gpu->memory_used_bytes) +
                           " of its memory taken" +
                           (who.empty() ? ", by processes that aren't shown here" : ": " + join(who, ", ")),
                       "nvidia-smi, and end them or choose other GPUs by CUDA_VISIBLE_DEVICES");
  }
  return found;
}

}  // namespace lorikeet::probe
