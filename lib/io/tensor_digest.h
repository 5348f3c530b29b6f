#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/safetensors.h"

namespace lorikeet::io {

/// A digest of a tensor's dtype, shape and every byte that finds accidents, not forgeries: the sum of 128-bit
/// hashes (XXH3) of its header and of its blocks, each seeded with its place. A sum, so that threads and
/// processes that hash other blocks of a tensor add theirs up in any order.
class TensorDigest {
 public:
  /// Blocks begin at multiples of this in the tensor's bytes; the last one may be shorter.
  static constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
  /// Length of `hex`.
  static constexpr std::size_t kHexDigits = 32;

  /// Adds dtype and shape: once for a tensor.
  void add_header(const TensorView& tensor);
  /// Adds block number `block` of the tensor's bytes: each once.
  void add_block(const TensorView& tensor, std::size_t block);
  TensorDigest& operator+=(const TensorDigest& other);

  std::string hex() const;
  /// The digest whose `hex` this is. Throws Error for anything else.
  static TensorDigest from_hex(std::string_view hex);

  bool operator==(const TensorDigest&) const = default;

 private:
  void add(std::string_view bytes, std::uint64_t seed);

  std::uint64_t high_ = 0, low_ = 0;
};

/// The digest of a whole tensor.
TensorDigest digest_of(const TensorView& tensor);

}  // namespace lorikeet::io
