#include "io/tensor_digest.h"

#include <xxhash.h>

#include <charconv>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::io {
namespace {

constexpr std::uint64_t kHeaderSeed = UINT64_MAX;  // no block has this number
constexpr std::size_t kHalf = TensorDigest::kHexDigits / 2;

std::string half_hex(std::uint64_t value) {
  std::string digits(kHalf, '0');
  for (std::size_t i = kHalf; i-- > 0; value >>= 4) digits[i] = "0123456789abcdef"[value & 15];
  return digits;
}

}  // namespace

void TensorDigest::add(std::string_view bytes, std::uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  high_ += hash.high64;
  low_ += hash.low64;
}

void TensorDigest::add_header(const TensorView& tensor) {
  add(std::string(dtype_safetensors_name(tensor.dtype)) + shape_text(tensor.shape), kHeaderSeed);
}

void TensorDigest::add_block(const TensorView& tensor, std::size_t block) {
  add(tensor.bytes.substr(block * kBlockBytes, kBlockBytes), block);
}

TensorDigest& TensorDigest::operator+=(const TensorDigest& other) {
  high_ += other.high_;
  low_ += other.low_;
  return *this;
}

std::string TensorDigest::hex() const { return half_hex(high_) + half_hex(low_); }

TensorDigest TensorDigest::from_hex(std::string_view hex) {
  const auto half = [&](std::string_view digits) {
    std::uint64_t value = 0;
    const char* begin = digits.data();
    const char* end = begin + digits.size();
    const auto [stop, error] = std::from_chars(begin, end, value, 16);
    if (hex.size() != kHexDigits || error != std::errc() || stop != end) {
      throw Error("[checkpoint] expected a digest of " + std::to_string(kHexDigits) +
                  " hexadecimal digits, got '" + escape_control(hex) + "'");
    }
    return value;
  };
  TensorDigest digest;
  digest.high_ = half(hex.substr(0, kHalf));
  digest.low_ = half(hex.substr(std::min(hex.size(), kHalf)));
  return digest;
}

TensorDigest digest_of(const TensorView& tensor) {
  TensorDigest digest;
  digest.add_header(tensor);
  for (std::size_t block = 0; block * TensorDigest::kBlockBytes < tensor.bytes.size(); ++block)
    digest.add_block(tensor, block);
  return digest;
}

}  // namespace lorikeet::io
