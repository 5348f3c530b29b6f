#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace lorikeet {

/// Philox4x32-10: a counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
/// SC 2011). The same key and counter give the same four words on every machine, device and thread.
struct Philox {
  using Counter = std::array<std::uint32_t, 4>;
  using Key = std::array<std::uint32_t, 2>;

  /// Four uniform 32-bit words of `counter` under `key`.
  static constexpr Counter words(Counter counter, Key key) {
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
      counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
                 static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    return counter;
  }
};

/// 64-bit FNV-1a: turns a name into a part of a Philox key. Not for untrusted input.
constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

/// The stream of a (seed, name) pair, read in order or at any position.
class PhiloxStream {
 public:
  constexpr PhiloxStream(std::uint64_t seed, std::string_view name)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        name_hash_(fnv1a(name)) {}

  /// The four words of block `index`.
  constexpr Philox::Counter block(std::uint64_t index) const {
    return Philox::words(
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
         static_cast<std::uint32_t>(name_hash_), static_cast<std::uint32_t>(name_hash_ >> 32)},
        key_);
  }

  /// The next 32-bit word.
  constexpr std::uint32_t next() {
    if (position_ % 4 == 0) buffer_ = block(position_ / 4);
    return buffer_[position_++ % 4];
  }

  /// Uniform in [0, 1) with 24 random bits: exact in fp32.
  constexpr float uniform() { return static_cast<float>(next() >> 8) * 0x1p-24F; }

  /// Uniform integer in [0, bound), without bias (rejection).
  constexpr std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t limit = bound * ((~std::uint64_t{0}) / bound);
    while (true) {
      const std::uint64_t high = next();
      const std::uint64_t value = high << 32 | next();
      if (value < limit) return value % bound;
    }
  }

  /// Standard normal (Box-Muller, one value of the pair).
  float normal() {
    const double u1 = (static_cast<double>(next()) + 1.0) * 0x1p-32;  // (0, 1]: log never sees 0
    const double u2 = static_cast<double>(next()) * 0x1p-32;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u1)) * std::cos(6.283185307179586 * u2));
  }

 private:
  Philox::Key key_;
  std::uint64_t name_hash_;
  std::uint64_t position_ = 0;
  Philox::Counter buffer_{};
};

}  // namespace lorikeet
