#include "device/device.h"

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/strings.h"
#include "device/uuid.h"

namespace lorikeet::device {
namespace {

// Its name, and what else tells it from others of its kind.
std::string described(const CudaDevice& cuda, const std::string& memory) {
  std::vector<std::string> parts{cuda.name};
  if (!memory.empty()) parts.push_back(memory);
  if (!cuda.uuid.empty()) parts.push_back(cuda.uuid);
  if (cuda.pci) parts.push_back(cuda.pci->text());
  return "(" + join(parts, ", ") + ")";
}

Device cuda_device(std::int64_t index) { return {Device::Kind::kCuda, static_cast<int>(index)}; }

std::string list_of(const std::vector<CudaDevice>& found) {
  std::vector<std::string> names;
  names.reserve(found.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    names.push_back("cuda:" + std::to_string(i) + " " + described(found[i], ""));
  std::string list = found.empty() ? "no CUDA device is here (the line GPUs of `lorikeet doctor` says why)"
                                   : "here are " + join(names, ", ");
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) list += " (CUDA_VISIBLE_DEVICES is '" + escape_control(visible) + "')";
  return list;
}

Device require_there(const Device& wanted, const std::vector<CudaDevice>& found) {
  if (static_cast<std::size_t>(wanted.index) < found.size()) return wanted;
  throw Error("[device] '" + wanted.name() + "' isn't there; " + list_of(found) +
              "; use device=cpu or device=auto");
}

// The device that has this UUID, or the beginning of one, or this PCI address.
Device find_card(const std::string& card, const std::vector<CudaDevice>& found) {
  const auto fail = [&](const std::string& why) {
    return Error("[device] '" + card + "' " + why + "; " + list_of(found));
  };
  const std::optional<PciAddress> address = is_uuid(card) ? std::nullopt : parse_pci_address(card);
  if (!is_uuid(card) && !address)
    throw fail("is neither a UUID (GPU-...) nor a PCI address (such as 0000:41:00.0)");
  std::vector<std::int64_t> fitting;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (address ? found[i].pci == address : uuid_begins(found[i].uuid, card))
      fitting.push_back(static_cast<std::int64_t>(i));
  }
  if (fitting.empty()) throw fail("isn't there");
  if (fitting.size() > 1) throw fail("fits " + std::to_string(fitting.size()) + " devices; write more of it");
  return cuda_device(fitting[0]);
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

std::vector<Device> select(const config::DeviceSetting& setting, bool cuda_built,
                           const std::vector<CudaDevice>& found, const std::vector<int>& preferred,
                           int ranks) {
  using Kind = config::DeviceSetting::Kind;
  const auto count = static_cast<std::size_t>(ranks);
  const bool automatic = setting.kind == Kind::kAuto;
  if (setting.kind == Kind::kCpu || (automatic && (!cuda_built || found.empty())))
    return std::vector<Device>(count);

  const std::string name = setting.kind == Kind::kCard ? setting.card
                           : setting.index             ? cuda_device(*setting.index).name()
                                                       : "cuda";
  if (!cuda_built) {
    throw Error("[device] '" + name +
                "' needs a build with CUDA; configure with -DLORIKEET_CUDA=ON, or use device=cpu");
  }
  if (setting.kind == Kind::kCard || setting.index) {
    const Device one = setting.kind == Kind::kCard ? find_card(setting.card, found)
                                                   : require_there(cuda_device(*setting.index), found);
    if (count == 1) return {one};
    throw Error("[device] '" + name + "' is one device, and " + std::to_string(ranks) +
                " processes run on this machine; use device=cuda, and CUDA_VISIBLE_DEVICES to choose some");
  }
  if (found.empty()) require_there(cuda_device(0), found);
  if (count > found.size()) {
    throw Error("[device] " + std::to_string(ranks) + " processes run on this machine; " + list_of(found) +
                "; start at most one for each, or use device=cpu");
  }
  std::vector<Device> devices;
  devices.reserve(count);
  for (std::size_t i = 0; i < count; ++i) devices.push_back(cuda_device(preferred.at(i)));
  return devices;
}

std::string describe(const Device& device, const std::vector<CudaDevice>& found) {
  if (!device.is_cuda()) return "cpu (" + cpu_model() + ")";
  const CudaDevice& cuda = found.at(static_cast<std::size_t>(device.index));
  return device.name() + " " + described(cuda, format_bytes(cuda.memory_bytes));
}

}  // namespace lorikeet::device
