#include "data/columnar/encodings.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace lorikeet::data::columnar {
namespace {

// Numbers of `width` bits (at most 64), packed from the lowest bit up.
class BitReader {
 public:
  BitReader(std::string_view bytes, unsigned width) : bytes_(bytes), width_(width) {}

  std::uint64_t next() {
    std::uint64_t value = 0;
    for (unsigned got = 0; got < width_;) {
      const auto byte = static_cast<std::uint8_t>(bytes_[bit_ / 8]);
      const unsigned offset = bit_ % 8;
      const unsigned part = std::min(8 - offset, width_ - got);
      const std::uint64_t bits = (static_cast<unsigned>(byte) >> offset) & ((1U << part) - 1U);
      value |= bits << got;
      got += part;
      bit_ += part;
    }
    return value;
  }

 private:
  std::string_view bytes_;
  unsigned width_;
  std::size_t bit_ = 0;
};

std::uint64_t zigzag(std::uint64_t value) { return (value >> 1) ^ (~(value & 1) + 1); }

// Lengths as DELTA_BINARY_PACKED gives them, which must not be negative.
std::vector<std::int64_t> decode_lengths(ByteReader& in, std::size_t count) {
  std::vector<std::int64_t> lengths = decode_delta(in, count);
  for (const std::int64_t length : lengths)
    if (length < 0) in.fail("has a negative length");
  return lengths;
}

}  // namespace

void ByteReader::fail(const std::string& what) const {
  throw Error(where_ + " " + what + "; the file is damaged, fetch or write it again");
}

std::string_view ByteReader::take(std::uint64_t count) {
  if (count > bytes_.size()) fail("ends before its values do");
  const std::string_view taken = bytes_.substr(0, static_cast<std::size_t>(count));
  bytes_.remove_prefix(static_cast<std::size_t>(count));
  return taken;
}

std::uint64_t ByteReader::take_varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint8_t byte = take_byte();
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  fail("has a number that is too long");
}

std::uint64_t ByteReader::take_number(std::size_t width) {
  static_assert(std::endian::native == std::endian::little);
  const std::string_view bytes = take(width);
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), width);
  return value;
}

std::vector<std::uint32_t> decode_rle(ByteReader& in, unsigned bit_width, std::size_t count) {
  if (bit_width > 32) in.fail("has numbers of more than 32 bits");
  std::vector<std::uint32_t> out;
  out.reserve(count);
  while (out.size() < count) {
    const std::uint64_t head = in.take_varint();
    const std::uint64_t length = head >> 1;
    const std::size_t wanted = count - out.size();
    if ((head & 1) == 0) {
      const auto value = static_cast<std::uint32_t>(in.take_number((bit_width + 7) / 8));
      out.insert(out.end(), static_cast<std::size_t>(std::min<std::uint64_t>(length, wanted)), value);
      continue;
    }
    if (length > UINT32_MAX) in.fail("has a run that is too long");
    // Groups of 8; the last one's bytes may be fewer where its values are.
    const std::size_t taken = static_cast<std::size_t>(std::min<std::uint64_t>(length * 8, wanted));
    const std::uint64_t bytes = std::min<std::uint64_t>(length * bit_width, in.left());
    if (bytes * 8 < static_cast<std::uint64_t>(taken) * bit_width) in.fail("ends before its values do");
    BitReader bits(in.take(bytes), bit_width);
    for (std::size_t i = 0; i < taken; ++i) out.push_back(static_cast<std::uint32_t>(bits.next()));
  }
  return out;
}

std::vector<std::int64_t> decode_delta(ByteReader& in, std::size_t count) {
  const std::uint64_t block = in.take_varint();
  const std::uint64_t miniblocks = in.take_varint();
  const std::uint64_t total = in.take_varint();
  std::uint64_t value = zigzag(in.take_varint());
  if (block == 0 || block % 128 != 0 || block > (1U << 20) || miniblocks == 0 || block % miniblocks != 0 ||
      (block / miniblocks) % 32 != 0)
    in.fail("has delta blocks of an impossible size");
  if (total != count)
    in.fail("holds " + std::to_string(total) + " delta values where " + std::to_string(count) +
            " are expected");
  const std::uint64_t in_miniblock = block / miniblocks;
  std::vector<std::int64_t> out;
  out.reserve(count);
  if (count > 0) out.push_back(static_cast<std::int64_t>(value));
  while (out.size() < count) {
    const std::uint64_t least = zigzag(in.take_varint());
    const std::string_view widths = in.take(miniblocks);
    for (const char width_byte : widths) {
      if (out.size() == count) break;  // what is left of the block need not be there
      const unsigned width = static_cast<std::uint8_t>(width_byte);
      if (width > 64) in.fail("has delta values of more than 64 bits");
      BitReader bits(in.take(in_miniblock / 8 * width), width);
      const std::size_t taken =
          static_cast<std::size_t>(std::min<std::uint64_t>(in_miniblock, count - out.size()));
      for (std::size_t i = 0; i < taken; ++i) {
        value += least + bits.next();
        out.push_back(static_cast<std::int64_t>(value));
      }
    }
  }
  return out;
}

void decode_plain_strings(ByteReader& in, std::size_t count, Array& out) {
  for (std::size_t i = 0; i < count; ++i) out.strings.push_back(in.take(in.take_number(4)));
}

void decode_delta_length_strings(ByteReader& in, std::size_t count, Array& out) {
  for (const std::int64_t length : decode_lengths(in, count))
    out.strings.push_back(in.take(static_cast<std::uint64_t>(length)));
}

void decode_delta_strings(ByteReader& in, std::size_t count, std::uint64_t most_bytes, Array& out) {
  const std::vector<std::int64_t> prefixes = decode_lengths(in, count);
  Array suffixes;
  decode_delta_length_strings(in, count, suffixes);
  std::uint64_t total = 0, before = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto prefix = static_cast<std::uint64_t>(prefixes[i]);
    if (prefix > before) in.fail("has a prefix longer than the string that it is of");
    before = prefix + suffixes.strings[i].size();
    total += before;
    if (total > most_bytes)
      in.fail("has strings that unpack to more than " + std::to_string(most_bytes) + " bytes");
  }
  auto text = std::make_shared<std::string>();
  text->reserve(static_cast<std::size_t>(total));  // so that views into it stay
  std::string_view last;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = text->size();
    text->append(last.substr(0, static_cast<std::size_t>(prefixes[i]))).append(suffixes.strings[i]);
    last = std::string_view(*text).substr(begin);
    out.strings.push_back(last);
  }
  out.owners.push_back(std::move(text));
}

}  // namespace lorikeet::data::columnar
