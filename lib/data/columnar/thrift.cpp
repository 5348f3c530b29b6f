#include "data/columnar/thrift.h"

#include "base/error.h"

namespace lorikeet::data::columnar {
namespace {

constexpr int kMostDepth = 32;

std::int64_t zigzag(std::uint64_t value) {
  return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

}  // namespace

void ThriftReader::fail(const std::string& what) const {
  throw Error(where_ + " " + what + " at its byte " + std::to_string(position_) +
              "; the file is damaged, fetch or write it again");
}

std::uint8_t ThriftReader::next_byte() {
  if (position_ >= bytes_.size()) fail("ends inside a value");
  return static_cast<std::uint8_t>(bytes_[position_++]);
}

std::uint64_t ThriftReader::next_varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint8_t byte = next_byte();
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  fail("has a number that is too long");
}

void ThriftReader::advance(std::uint64_t count) {
  if (count > bytes_.size() - position_) fail("has a length beyond its end");
  position_ += static_cast<std::size_t>(count);
}

void ThriftReader::read_struct(const std::function<void(int, Type)>& field) {
  if (++depth_ > kMostDepth) fail("is nested too deep");
  std::int64_t id = 0;
  while (true) {
    const std::uint8_t head = next_byte();
    if (head == 0) break;
    const int delta = head >> 4;
    id = delta != 0 ? id + delta : zigzag(next_varint());
    if (id < 0 || id > INT16_MAX) fail("has a field number out of range");
    field(static_cast<int>(id), static_cast<Type>(head & 0x0F));
  }
  --depth_;
}

void ThriftReader::read_list(const std::function<void(Type)>& element) {
  if (++depth_ > kMostDepth) fail("is nested too deep");
  const std::uint8_t head = next_byte();
  const std::uint64_t count = head >> 4 == 15 ? next_varint() : static_cast<std::uint64_t>(head >> 4);
  // Every element takes a byte at least.
  if (count > bytes_.size() - position_) fail("has a list longer than what is left");
  for (std::uint64_t i = 0; i < count; ++i) element(static_cast<Type>(head & 0x0F));
  --depth_;
}

std::int64_t ThriftReader::read_integer(Type type) {
  if (type == Type::kByte) return static_cast<std::int8_t>(next_byte());
  if (type != Type::kI16 && type != Type::kI32 && type != Type::kI64) fail("lacks an integer");
  return zigzag(next_varint());
}

bool ThriftReader::read_bool(Type type) {
  if (type != Type::kTrue && type != Type::kFalse) fail("lacks a boolean");
  return type == Type::kTrue;
}

std::string ThriftReader::read_string(Type type) {
  if (type != Type::kBinary) fail("lacks a string");
  const std::uint64_t length = next_varint();
  const std::size_t begin = position_;
  advance(length);
  return std::string(bytes_.substr(begin, static_cast<std::size_t>(length)));
}

void ThriftReader::skip(Type type, int depth) {
  if (depth > kMostDepth) fail("is nested too deep");
  switch (type) {
    case Type::kTrue:
    case Type::kFalse: return;  // of a field, whose type is its value
    case Type::kByte: advance(1); return;
    case Type::kI16:
    case Type::kI32:
    case Type::kI64: next_varint(); return;
    case Type::kDouble: advance(8); return;
    case Type::kBinary: advance(next_varint()); return;
    case Type::kUuid: advance(16); return;
    case Type::kStruct: read_struct([&](int, Type field) { skip(field, depth + 1); }); return;
    case Type::kList:
    case Type::kSet:
      read_list([&](Type element) {
        // Booleans take a byte each as elements.
        if (element == Type::kTrue || element == Type::kFalse) {
          advance(1);
        } else {
          skip(element, depth + 1);
        }
      });
      return;
    case Type::kMap: {
      const std::uint64_t count = next_varint();
      if (count > bytes_.size() - position_) fail("has a map longer than what is left");
      if (count == 0) return;
      const std::uint8_t types = next_byte();
      for (std::uint64_t i = 0; i < 2 * count; ++i) {
        const auto part = static_cast<Type>(i % 2 == 0 ? types >> 4 : types & 0x0F);
        if (part == Type::kTrue || part == Type::kFalse) {
          advance(1);
        } else {
          skip(part, depth + 1);
        }
      }
      return;
    }
  }
  fail("has a value of an unknown type");
}

}  // namespace lorikeet::data::columnar
