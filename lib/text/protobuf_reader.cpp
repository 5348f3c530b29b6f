#include "text/protobuf_reader.h"

#include "base/error.h"

namespace lorikeet::text {

void ProtobufReader::fail(const std::string& what) const {
  throw Error("[" + where_ + "] not a whole protobuf message: " + what + ", with " +
              std::to_string(rest_.size()) + " bytes left; fetch the file again");
}

std::uint64_t ProtobufReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) fail("it ends inside a number");
    const auto byte = static_cast<unsigned char>(rest_[0]);
    rest_.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  fail("a number of more than ten bytes");
}

std::uint64_t ProtobufReader::fixed(std::size_t size) {
  if (rest_.size() < size) fail("it ends inside a number");
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
  }
  rest_.remove_prefix(size);
  return value;
}

std::optional<ProtobufReader::Field> ProtobufReader::next() {
  if (rest_.empty()) return std::nullopt;
  const std::uint64_t key = varint();
  if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) fail("field number " + std::to_string(key >> 3));
  Field field{static_cast<std::uint32_t>(key >> 3), Wire::kVarint, 0, {}};
  switch (key & 7) {
    case 0: field.integer = varint(); break;
    case 1:
      field.wire = Wire::kFixed64;
      field.integer = fixed(8);
      break;
    case 2: {
      field.wire = Wire::kBytes;
      const std::uint64_t length = varint();
      if (length > rest_.size()) fail("a field of " + std::to_string(length) + " bytes");
      field.bytes = rest_.substr(0, length);
      rest_.remove_prefix(length);
      break;
    }
    case 5:
      field.wire = Wire::kFixed32;
      field.integer = fixed(4);
      break;
    default: fail("wire type " + std::to_string(key & 7));
  }
  return field;
}

}  // namespace lorikeet::text
