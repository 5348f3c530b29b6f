#include "device/pci_address.h"

#include <charconv>
#include <cstdio>
#include <vector>

#include "base/strings.h"

namespace lorikeet::device {
namespace {

std::optional<unsigned> hexadecimal(std::string_view digits, std::size_t most_digits, unsigned most) {
  unsigned value = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.empty() || digits.size() > most_digits || error != std::errc{} ||
      rest != digits.data() + digits.size() || value > most) {
    return std::nullopt;
  }
  return value;
}

std::string format(const PciAddress& address, int domain_digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%0*X:%02X:%02X.%X", domain_digits, address.domain, address.bus,
                address.device, address.function);
  return text;
}

}  // namespace

std::string PciAddress::text() const { return format(*this, 8); }

std::string PciAddress::kernel_name() const { return ascii_lower(format(*this, 4)); }

std::optional<PciAddress> parse_pci_address(std::string_view text) {
  std::vector<std::string> parts = split(text, ':');
  if (parts.size() == 2) parts.insert(parts.begin(), "0");
  if (parts.size() != 3) return std::nullopt;
  std::vector<std::string> slot = split(parts[2], '.');
  if (slot.size() == 1) slot.emplace_back("0");
  if (slot.size() != 2) return std::nullopt;
  const auto domain = hexadecimal(parts[0], 8, 0xffffffff), bus = hexadecimal(parts[1], 2, 0xff),
             device = hexadecimal(slot[0], 2, 0x1f), function = hexadecimal(slot[1], 1, 7);
  if (!domain || !bus || !device || !function) return std::nullopt;
  return PciAddress{*domain, *bus, *device, *function};
}

}  // namespace lorikeet::device
