#include <fstream>
#include <iterator>

#include "probe/sources.h"

namespace lorikeet::probe {
namespace {

namespace fs = std::filesystem;

std::uint32_t word_at(const std::string& bytes, std::size_t offset) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i)
    word |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i);
  return word;
}

// Whether a bridge's Access Control Services send requests between devices below it up to the host bridge:
// request redirect (bit 2) of the ACS control register, at offset 6 of extended capability 0x000D. PCI
// Express base specification, Access Control Services. nullopt where the extended part of the configuration
// can't be read, which takes root.
std::optional<bool> redirects(const fs::path& config) {
  constexpr std::size_t kExtended = 0x100, kMost = 4096, kHeader = 4, kControl = 6;
  constexpr std::uint32_t kAcs = 0x000D, kRequestRedirect = 1U << 2;
  std::ifstream file(config, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() <= kExtended) return std::nullopt;
  std::size_t at = kExtended;
  for (std::size_t turn = 0; turn < kMost / kHeader && at >= kExtended && at + 8 <= bytes.size(); ++turn) {
    const std::uint32_t header = word_at(bytes, at);
    if ((header & 0xFFFF) == kAcs)
      return (word_at(bytes, at + kHeader) >> (8 * (kControl - kHeader)) & kRequestRedirect) != 0;
    at = header >> 20;
  }
  return false;
}

PciFacts facts_of(const fs::path& devices, const std::string& name) {
  PciFacts facts;
  std::ifstream type(devices / name / "iommu_group/type");
  type >> facts.iommu_domain;
  std::error_code error;
  fs::path bridge = fs::canonical(devices / name, error).parent_path();
  // Up to the host bridge's folder, "pci0000:40", which has no configuration of its own.
  for (; !error && fs::exists(bridge / "config", error) && !error; bridge = bridge.parent_path()) {
    const auto one = redirects(bridge / "config");
    if (one) facts.acs_redirects = facts.acs_redirects.value_or(false) || *one;
  }
  return facts;
}

}  // namespace

std::vector<PciFacts> read_pci(const fs::path& root, const device::Inventory& inventory) {
  std::vector<PciFacts> all;
  all.reserve(inventory.gpus.size());
  for (const device::GpuInfo& gpu : inventory.gpus)
    all.push_back(gpu.pci ? facts_of(root / "sys/bus/pci/devices", gpu.pci->kernel_name()) : PciFacts{});
  return all;
}

}  // namespace lorikeet::probe
