#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace lorikeet::device {

/// Where a device is on the PCI buses of its machine. Ordered as CUDA_DEVICE_ORDER=PCI_BUS_ID orders.
struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0, function = 0;

  auto operator<=>(const PciAddress&) const = default;
  /// As nvidia-smi writes it: "00000000:41:00.0".
  std::string text() const;
  /// As the kernel's folders are named: "0000:41:00.0".
  std::string kernel_name() const;
};

/// Reads an address in any usual form, hexadecimal in either case: "00000000:41:00.0", "0000:41:00.0",
/// "41:00.0", "41:00"; domain and function are 0 where they aren't written. Empty for anything else.
std::optional<PciAddress> parse_pci_address(std::string_view text);

}  // namespace lorikeet::device
