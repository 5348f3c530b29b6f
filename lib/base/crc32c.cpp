#include "base/crc32c.h"

#include <array>

namespace lorikeet {
namespace {

// Castagnoli's polynomial 0x1EDC6F41 with its bits reversed: the checksum takes the lowest bit of a byte
// first.
constexpr std::uint32_t kPolynomial = 0x82F63B78;

// What each value of the lowest byte adds to the checksum once it is shifted out.
constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table.at(byte) = rest;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : bytes) crc = (crc >> 8) ^ kTable.at((crc ^ static_cast<unsigned char>(c)) & 0xFF);
  return ~crc;
}

}  // namespace lorikeet
