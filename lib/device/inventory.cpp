#include "device/inventory.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "device/nvml_reader.h"

namespace lorikeet::device {
namespace {

using nvml::Handle;
using nvml::Reader;
using nvml::Session;

struct ThrottleBit {
  unsigned long long bit;
  const char* name;
};
// NVML's clocks event reasons. Left out: idle (0x1), and clocks that were asked for (0x2, 0x10, 0x100).
constexpr ThrottleBit kThrottleBits[] = {{0x4, "power cap"},
                                         {0x8, "slowdown (hardware)"},
                                         {0x20, "thermal (software)"},
                                         {0x40, "thermal (hardware)"},
                                         {0x80, "power brake (hardware)"}};

// GB/s of one link and direction by NVML's number for the link's version; source: NVIDIA's data sheets, whose
// totals count both directions (A100: 12 links, 600 GB/s; GA102 cards: 4 links, 112.5 GB/s).
std::optional<double> link_rate(unsigned version) {
  switch (version) {
    case 1: return 20;       // 1.0: P100
    case 2:                  // 2.0: V100
    case 3:                  // 2.2: Turing, Xavier
    case 4:                  // 3.0: A100
    case 6: return 25;       // 4.0: H100
    case 5: return 14.0625;  // 3.1: RTX 3090, RTX A6000
    case 7: return 50;       // 5.0: B200
    default: return std::nullopt;
  }
}

void read_memory(Reader& reader, GpuInfo& gpu) {
  nvml::Memory memory{};
  if (!reader.read("memory", reader.calls().memory, &memory)) return;
  gpu.memory_total_bytes = memory.total_bytes;
  gpu.memory_free_bytes = memory.free_bytes;
  gpu.memory_used_bytes = memory.used_bytes;
}

std::vector<GpuProcess> processes_of(Reader& reader, const char* field,
                                     const nvml::Calls::Call<Handle, unsigned*, nvml::Process*>& call) {
  constexpr std::size_t kMostProcesses = 1024;
  constexpr unsigned long long kUnknown = ~0ULL;
  std::vector<nvml::Process> list(kMostProcesses);
  auto count = static_cast<unsigned>(list.size());
  if (!reader.read(field, call, &count, list.data())) return {};
  list.resize(std::min<std::size_t>(count, list.size()));
  std::vector<GpuProcess> processes;
  for (const nvml::Process& found : list) {
    GpuProcess process{found.pid, {}, {}};
    std::array<char, 256> name{};
    // A process that ended since has no name; that is no trouble of the card.
    const auto& name_of = reader.calls().process_name;
    if (Session::status(name_of, found.pid, name.data(), static_cast<unsigned>(name.size() - 1)) ==
        nvml::kSuccess)
      process.name = name.data();
    if (found.used_bytes != kUnknown) process.used_bytes = found.used_bytes;
    processes.push_back(std::move(process));
  }
  return processes;
}

void read_processes(Reader& reader, GpuInfo& gpu) {
  gpu.processes = processes_of(reader, "compute processes", reader.calls().compute_processes);
  for (GpuProcess& drawing : processes_of(reader, "graphics processes", reader.calls().graphics_processes)) {
    const auto same = [&](const GpuProcess& known) { return known.pid == drawing.pid; };
    if (std::none_of(gpu.processes.begin(), gpu.processes.end(), same))
      gpu.processes.push_back(std::move(drawing));
  }
}

std::vector<int> bits_of(const std::array<unsigned long, 128>& words) {
  constexpr int kBits = 8 * sizeof(unsigned long);
  std::vector<int> numbers;
  for (std::size_t word = 0; word < words.size(); ++word) {
    for (int bit = 0; bit < kBits; ++bit) {
      if ((words[word] >> bit & 1) != 0) numbers.push_back(static_cast<int>(word) * kBits + bit);
    }
  }
  return numbers;
}

void read_affinity(Reader& reader, GpuInfo& gpu) {
  std::array<unsigned long, 128> words{};
  const auto count = static_cast<unsigned>(words.size());
  if (reader.read("CPU affinity", reader.calls().cpu_affinity, count, words.data()))
    gpu.cpus = bits_of(words);
  words.fill(0);
  constexpr unsigned kScopeNode = 0;
  if (reader.read("NUMA affinity", reader.calls().memory_affinity, count, words.data(), kScopeNode))
    gpu.numa_nodes = bits_of(words);
}

void read_nvlinks(Reader& reader, GpuInfo& gpu) {
  for (unsigned link = 0; link < nvml::kMostNvLinks; ++link) {
    unsigned active = 0, peer_access = 0;
    // What may have the driver bring up an idle link, whose state is asked next. NCCL does the same.
    reader.quiet(reader.calls().nvlink_capability, link, 0U, &peer_access);
    const int code = reader.quiet(reader.calls().nvlink_state, link, &active);
    if (code != nvml::kSuccess && link == 0) reader.note("NVLink", code);
    if (code == nvml::kInvalidArgument) return;  // no more links
    if (code != nvml::kSuccess || active == 0) continue;
    NvLink found{link, {}, {}, {}};
    if (const auto version = reader.number("NVLink version", reader.calls().nvlink_version, link))
      found.gb_per_second = link_rate(*version);
    constexpr unsigned kUntold = 255;
    const auto type = reader.number("NVLink peer", reader.calls().nvlink_remote_type, link);
    if (type && *type != kUntold)
      found.peer = *type == 0   ? NvLink::Peer::kGpu
                   : *type == 2 ? NvLink::Peer::kSwitch
                                : NvLink::Peer::kOther;
    nvml::PciInfo remote{};
    if (reader.read("NVLink peer's address", reader.calls().nvlink_remote, link, &remote))
      found.peer_address = PciAddress{remote.domain, remote.bus, remote.device, 0};
    gpu.nvlinks.push_back(found);
  }
}

void read_mig(Reader& reader, const Session& session, GpuInfo& gpu) {
  unsigned current = 0, pending = 0;
  if (!reader.read("MIG mode", reader.calls().mig_mode, &current, &pending)) return;
  gpu.mig = current == 1;
  if (!*gpu.mig) return;
  const unsigned count = reader.number("MIG devices", reader.calls().mig_count_max).value_or(0);
  for (unsigned i = 0; i < count; ++i) {
    Handle handle = nullptr;
    if (reader.quiet(reader.calls().mig_handle, i, &handle) != nvml::kSuccess) continue;  // a free place
    std::vector<Untold> untold;
    Reader slice(session, handle, untold);
    MigDevice device;
    device.uuid = slice.text("uuid", session.calls().uuid).value_or("");
    device.name = slice.text("name", session.calls().name);
    nvml::Memory memory{};
    if (slice.read("memory", session.calls().memory, &memory)) {
      device.memory_total_bytes = memory.total_bytes;
      device.memory_free_bytes = memory.free_bytes;
    }
    for (const Untold& field : untold)
      gpu.untold.push_back({"MIG device " + std::to_string(i) + " " + field.field, field.reason});
    gpu.mig_devices.push_back(std::move(device));
  }
}

void read_ecc(Reader& reader, GpuInfo& gpu) {
  unsigned current = 0, pending = 0;
  if (!reader.read("ECC mode", reader.calls().ecc_mode, &current, &pending)) return;
  gpu.ecc = current == 1;
  if (!*gpu.ecc) return;
  const auto count = [&](const char* field, unsigned kind, unsigned counter) {
    unsigned long long errors = 0;
    return reader.read(field, reader.calls().ecc_errors, kind, counter, &errors)
               ? std::optional<std::uint64_t>(errors)
               : std::nullopt;
  };
  gpu.ecc_errors = {count("corrected ECC errors", 0, 0), count("uncorrected ECC errors", 1, 0),
                    count("corrected ECC errors of its life", 0, 1),
                    count("uncorrected ECC errors of its life", 1, 1)};
}

void read_clocks(Reader& reader, GpuInfo& gpu) {
  unsigned long long bits = 0;
  if (!reader.read("throttle reasons", reader.calls().throttle_reasons, &bits)) return;
  gpu.throttle_reasons.emplace();
  for (const ThrottleBit& reason : kThrottleBits) {
    if ((bits & reason.bit) != 0) gpu.throttle_reasons->emplace_back(reason.name);
  }
}

void read_all(Reader& reader, const Session& session, GpuInfo& gpu) {
  const nvml::Calls& calls = session.calls();
  nvml::PciInfo pci{};
  if (reader.read("PCI bus id", calls.pci_info, &pci)) gpu.pci = {pci.domain, pci.bus, pci.device, 0};
  gpu.name = reader.text("name", calls.name);
  gpu.uuid = reader.text("UUID", calls.uuid);
  read_memory(reader, gpu);
  read_processes(reader, gpu);
  int major = 0, minor = 0;
  if (reader.read("compute capability", calls.compute_capability, &major, &minor)) {
    gpu.compute_major = major;
    gpu.compute_minor = minor;
  }
  read_affinity(reader, gpu);
  gpu.pcie_width = reader.number("PCIe width", calls.link_width);
  gpu.pcie_width_max = reader.number("largest PCIe width", calls.link_width_max);
  gpu.pcie_generation = reader.number("PCIe generation", calls.link_generation);
  gpu.pcie_generation_max = reader.number("largest PCIe generation", calls.link_generation_max);
  read_nvlinks(reader, gpu);
  read_mig(reader, session, gpu);
  read_ecc(reader, gpu);
  read_clocks(reader, gpu);
}

// A link whose peer isn't told and has no GPU's address ends in a switch that isn't shown, as in virtual
// machines; NCCL takes it for one, too.
void find_hidden_switches(std::vector<GpuInfo>& gpus) {
  for (GpuInfo& gpu : gpus) {
    for (NvLink& link : gpu.nvlinks) {
      if (link.peer) continue;
      const bool to_gpu = link.peer_address &&
                          std::any_of(gpus.begin(), gpus.end(),
                                      [&](const GpuInfo& other) { return other.pci == link.peer_address; });
      link.peer = to_gpu ? NvLink::Peer::kGpu : NvLink::Peer::kSwitch;
    }
  }
}

// CUDA's PCI_BUS_ID order; a GPU that hides its address comes after those that tell.
bool before(const GpuInfo& a, const GpuInfo& b) {
  if (a.pci.has_value() != b.pci.has_value()) return a.pci.has_value();
  return a.pci ? *a.pci < *b.pci : a.nvml_index < b.nvml_index;
}

}  // namespace

std::string GpuInfo::description() const {
  std::vector<std::string> marks;
  if (uuid) marks.push_back(*uuid);
  if (pci) marks.push_back(pci->text());
  const std::string who = name.value_or("a GPU without a name");
  return marks.empty() ? who : who + " (" + join(marks, ", ") + ")";
}

Inventory no_inventory(std::string why) {
  Inventory inventory;
  inventory.absent = std::move(why);
  return inventory;
}

Inventory read_inventory(const nvml::Session& session) {
  Inventory inventory;
  const nvml::Calls& calls = session.calls();
  unsigned count = 0;
  if (const int code = Session::status(calls.count, &count); code != nvml::kSuccess)
    return no_inventory("the NVIDIA driver can't count its GPUs: " + session.reason(code));
  std::array<char, 128> version{};
  if (Session::status(calls.driver_version, version.data(), static_cast<unsigned>(version.size() - 1)) ==
      nvml::kSuccess)
    inventory.driver_version = version.data();

  for (unsigned i = 0; i < count; ++i) {
    GpuInfo gpu;
    gpu.nvml_index = i;
    Handle handle = nullptr;
    const int code = Session::status(calls.handle_by_index, i, &handle);
    if (code == nvml::kNoPermission) {  // another job's, where a cluster gives each its own
      ++inventory.others;
      continue;
    }
    if (code != nvml::kSuccess) {
      inventory.lost.push_back({i, "", session.reason(code)});
      continue;
    }
    Reader reader(session, handle, gpu.untold);
    read_all(reader, session, gpu);
    if (reader.lost()) {
      const bool named = gpu.name || gpu.uuid || gpu.pci;
      inventory.lost.push_back({i, named ? gpu.description() : "", *reader.lost()});
    } else {
      inventory.gpus.push_back(std::move(gpu));
    }
  }
  std::sort(inventory.gpus.begin(), inventory.gpus.end(), before);
  find_hidden_switches(inventory.gpus);
  return inventory;
}

}  // namespace lorikeet::device
