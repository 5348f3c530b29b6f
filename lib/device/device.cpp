#include "device/device.h"

#include <fstream>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::device {
namespace {

std::string list_of(const std::vector<CudaDevice>& found) {
  if (found.empty()) return "no CUDA device is here";
  std::vector<std::string> names;
  names.reserve(found.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    names.push_back("cuda:" + std::to_string(i) + " (" + found[i].name + ")");
  return "here are " + join(names, ", ");
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.starts_with("model name")) return trim(line.substr(line.find(':') + 1));
  }
  return "unknown CPU";
}

}  // namespace

std::string Device::name() const { return is_cuda() ? "cuda:" + std::to_string(index) : "cpu"; }

Device select(const config::DeviceSetting& setting, bool cuda_built, const std::vector<CudaDevice>& found) {
  using Kind = config::DeviceSetting::Kind;
  if (setting.kind == Kind::kCpu) return {};
  if (setting.kind == Kind::kAuto)
    return cuda_built && !found.empty() ? Device{Device::Kind::kCuda, 0} : Device{};
  const Device wanted{Device::Kind::kCuda, static_cast<int>(setting.index.value_or(0))};
  if (!cuda_built) {
    throw Error("[device] '" + wanted.name() +
                "' needs a build with CUDA; configure with -DLORIKEET_CUDA=ON, or use device=cpu");
  }
  if (static_cast<std::size_t>(wanted.index) >= found.size()) {
    throw Error("[device] '" + wanted.name() + "' isn't there; " + list_of(found) +
                "; use device=cpu or device=auto");
  }
  return wanted;
}

Device for_rank(const Device& chosen, const config::DeviceSetting& setting, int local_rank, int local_size,
                const std::vector<CudaDevice>& found) {
  if (!chosen.is_cuda() || local_size == 1) return chosen;
  if (setting.index) {
    throw Error("[device] '" + chosen.name() + "' is one device, and " + std::to_string(local_size) +
                " processes run on this machine; use device=cuda, and CUDA_VISIBLE_DEVICES to choose some");
  }
  if (static_cast<std::size_t>(local_size) > found.size()) {
    throw Error("[device] " + std::to_string(local_size) + " processes run on this machine; " +
                list_of(found) + "; start at most one for each, or use device=cpu");
  }
  return {Device::Kind::kCuda, local_rank};
}

std::string describe(const Device& device, const std::vector<CudaDevice>& found) {
  if (!device.is_cuda()) return "cpu (" + cpu_model() + ")";
  const CudaDevice& cuda = found.at(static_cast<std::size_t>(device.index));
  return device.name() + " (" + cuda.name + ", " + format_bytes(cuda.memory_bytes) + ")";
}

}  // namespace lorikeet::device
