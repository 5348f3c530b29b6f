#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

// Parquet files made byte by byte, so that each part of one can lie.
namespace lorikeet::test {

/// Thrift's compact protocol, as far as the tests need it: fields in rising order, ids below 16 apart.
class ThriftWriter {
 public:
  ThriftWriter& integer(int id, std::int64_t value) {
    field(id, 6);
    varint((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
    return *this;
  }
  ThriftWriter& text(int id, const std::string& value) {
    field(id, 8);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ThriftWriter& structure(int id, const ThriftWriter& value) {
    field(id, 12);
    bytes_ += value.finished();
    return *this;
  }
  ThriftWriter& list(int id, const std::vector<ThriftWriter>& values) {
    field(id, 9);
    bytes_ += static_cast<char>(0xFC);
    varint(values.size());
    for (const ThriftWriter& value : values) bytes_ += value.finished();
    return *this;
  }
  std::string finished() const { return bytes_ + '\0'; }

 private:
  void field(int id, int type) {
    bytes_ += static_cast<char>(((id - last_) << 4) | type);
    last_ = id;
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
  int last_ = 0;
};

/// A file of one row group with one required column of strings, `values`, in one plain page. The other
/// members are what its headers say, which the defaults get right where they are -1.
struct ParquetBuilder {
  std::vector<std::string> values{"a", "bc", "d"};
  std::string column = "text";
  std::int64_t rows = -1, group_rows = -1, column_values = -1, page_values = -1;
  std::int64_t page_bytes = -1, unpacked_bytes = -1, offset = -1;
  std::int64_t codec = 0, encoding = 0, type = 6, schema_children = 1, repetition = 0;

  std::string bytes() const {
    const auto or_else = [](std::int64_t value, std::size_t right) {
      return value == -1 ? static_cast<std::int64_t>(right) : value;
    };
    std::string page;
    for (const std::string& value : values) page += number(value.size()) + value;
    ThriftWriter header;
    header.integer(1, 0)
        .integer(2, or_else(unpacked_bytes, page.size()))
        .integer(3, or_else(page_bytes, page.size()))
        .structure(5, ThriftWriter()
                          .integer(1, or_else(page_values, values.size()))
                          .integer(2, encoding)
                          .integer(3, 3)
                          .integer(4, 3));
    const std::string chunk = header.finished() + page;
    const ThriftWriter metadata = ThriftWriter()
                                      .integer(1, type)
                                      .integer(4, codec)
                                      .integer(5, or_else(column_values, values.size()))
                                      .integer(7, static_cast<std::int64_t>(chunk.size()))
                                      .integer(9, or_else(offset, 4));
    const ThriftWriter group = ThriftWriter()
                                   .list(1, {ThriftWriter().structure(3, metadata)})
                                   .integer(3, or_else(group_rows, values.size()));
    const ThriftWriter root = ThriftWriter().text(4, "schema").integer(5, schema_children);
    const ThriftWriter leaf =
        ThriftWriter().integer(1, type).integer(3, repetition).text(4, column).integer(6, 0);
    const std::string footer = ThriftWriter()
                                   .integer(1, 1)
                                   .list(2, {root, leaf})
                                   .integer(3, or_else(rows, values.size()))
                                   .list(4, {group})
                                   .finished();
    return "PAR1" + chunk + footer + number(footer.size()) + "PAR1";
  }

  /// Four bytes, little-endian.
  static std::string number(std::size_t value) {
    const auto narrow = static_cast<std::uint32_t>(value);
    std::string bytes(4, '\0');
    std::memcpy(bytes.data(), &narrow, 4);
    return bytes;
  }
};

}  // namespace lorikeet::test
