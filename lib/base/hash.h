#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lorikeet {

/// Incremental SHA-256 (FIPS 180-4), for fingerprints and checksums.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  Sha256& update(std::string_view bytes);

  /// Adds the length and then the bytes, so that ("ab", "c") and ("a", "bc") differ.
  Sha256& field(std::string_view bytes);

  /// The 32 bytes of the hash. The object is spent afterwards.
  std::string digest();

  /// The same as 64 lower-case hexadecimal digits.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Two lower-case hexadecimal digits for each byte.
std::string to_hex(std::string_view bytes);

/// sha256 of `bytes` in hexadecimal.
std::string sha256_hex(std::string_view bytes);

}  // namespace lorikeet
