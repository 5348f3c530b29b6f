#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/columnar/array.h"

// Parquet's encodings of values. Source: apache/parquet-format, Encodings.md. `where` starts every Error.
namespace lorikeet::data::columnar {

/// Bytes that are consumed from the front; taking more than there are throws Error.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  std::string_view take(std::uint64_t count);
  std::uint8_t take_byte() { return static_cast<std::uint8_t>(take(1)[0]); }
  std::uint64_t take_varint();
  /// A little-endian unsigned number of `width` bytes, at most 8.
  std::uint64_t take_number(std::size_t width);
  std::size_t left() const { return bytes_.size(); }
  const std::string& where() const { return where_; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string_view bytes_;
  const std::string& where_;
};

/// `count` numbers of the RLE / bit-packing hybrid, each of `bit_width` bits, at most 32.
std::vector<std::uint32_t> decode_rle(ByteReader& in, unsigned bit_width, std::size_t count);

/// `count` numbers of DELTA_BINARY_PACKED; sums wrap around in 64 bits.
std::vector<std::int64_t> decode_delta(ByteReader& in, std::size_t count);

/// Appends `count` strings of PLAIN, DELTA_LENGTH_BYTE_ARRAY or DELTA_BYTE_ARRAY to `out`. The strings of the
/// first two lie in the bytes of `in`; those of the third in a new owner of at most `most_bytes`.
void decode_plain_strings(ByteReader& in, std::size_t count, Array& out);
void decode_delta_length_strings(ByteReader& in, std::size_t count, Array& out);
void decode_delta_strings(ByteReader& in, std::size_t count, std::uint64_t most_bytes, Array& out);

}  // namespace lorikeet::data::columnar
