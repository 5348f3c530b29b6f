#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lorikeet::data::columnar {

/// Reads Thrift's compact protocol, in which Parquet writes its footer and page headers. Every length is
/// checked against what is left. Source: apache/thrift, doc/specs/thrift-compact-protocol.md.
class ThriftReader {
 public:
  enum class Type : std::uint8_t {
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kI16 = 4,
    kI32 = 5,
    kI64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12,
    kUuid = 13,
  };

  /// `where` starts every Error: "[data] 'a.parquet': the footer".
  ThriftReader(std::string_view bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

  /// Reads a struct: calls `field(id, type)` for each of its fields, which must read the value or skip it.
  void read_struct(const std::function<void(int, Type)>& field);

  /// Reads a list or set: calls `element(type)` for each element, which must read it or skip it.
  void read_list(const std::function<void(Type)>& element);

  /// A value whose type was given as `type`; throws Error if it isn't the one asked for.
  std::int64_t read_integer(Type type);
  bool read_bool(Type type);
  std::string read_string(Type type);

  void skip(Type type) { skip(type, 0); }

  /// Bytes read so far.
  std::size_t position() const { return position_; }

 private:
  std::uint8_t next_byte();
  std::uint64_t next_varint();
  void advance(std::uint64_t count);
  void skip(Type type, int depth);
  [[noreturn]] void fail(const std::string& what) const;

  std::string_view bytes_;
  std::string where_;
  std::size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace lorikeet::data::columnar
