#include "data/columnar/parquet_column.h"

#include <zlib.h>

#include <bit>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "data/columnar/codec.h"
#include "data/columnar/encodings.h"
#include "data/columnar/thrift.h"

namespace lorikeet::data::columnar {
namespace {

using Type = ThriftReader::Type;

enum class Encoding : std::uint8_t {
  kPlain = 0,
  kPlainDictionary = 2,
  kRle = 3,
  kBitPacked = 4,
  kDeltaBinaryPacked = 5,
  kDeltaLengthByteArray = 6,
  kDeltaByteArray = 7,
  kRleDictionary = 8,
  kByteStreamSplit = 9,
};

struct PageHeader {
  enum : std::int64_t { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };
  std::int64_t type = -1, unpacked_bytes = -1, packed_bytes = -1;
  std::int64_t values = -1, encoding = -1, level_encodings = 3;
  std::int64_t definition_bytes = 0, repetition_bytes = 0;
  bool is_compressed = true;  // the values of a page of version 2
  bool has_checksum = false;
  std::uint32_t checksum = 0;
};

PageHeader read_page_header(ThriftReader& in) {
  PageHeader out;
  const auto read_part = [&](int part) {
    in.read_struct([&](int id, Type type) {
      const bool v2 = part == 8;
      if (id == 1) {
        out.values = in.read_integer(type);
      } else if (id == (v2 ? 4 : 2)) {
        out.encoding = in.read_integer(type);
      } else if (part == 5 && (id == 3 || id == 4)) {
        const std::int64_t encoding = in.read_integer(type);
        if (encoding != 3) out.level_encodings = encoding;
      } else if (v2 && id == 5) {
        out.definition_bytes = in.read_integer(type);
      } else if (v2 && id == 6) {
        out.repetition_bytes = in.read_integer(type);
      } else if (v2 && id == 7) {
        out.is_compressed = in.read_bool(type);
      } else {
        in.skip(type);
      }
    });
  };
  in.read_struct([&](int id, Type type) {
    switch (id) {
      case 1: out.type = in.read_integer(type); break;
      case 2: out.unpacked_bytes = in.read_integer(type); break;
      case 3: out.packed_bytes = in.read_integer(type); break;
      case 4:
        out.checksum = static_cast<std::uint32_t>(in.read_integer(type));
        out.has_checksum = true;
        break;
      case 5:
      case 7:
      case 8:
        if (type == Type::kStruct) {
          read_part(id);
        } else {
          in.skip(type);
        }
        break;
      default: in.skip(type);
    }
  });
  return out;
}

class ColumnReader {
 public:
  ColumnReader(std::string_view file, const ColumnChunk& chunk, const SchemaNode& column,
               const std::string& name)
      : chunk_(chunk),
        column_(column),
        name_(name),
        where_("[data] '" + name + "': column '" + escape_control(column.name) + "'"),
        pages_(file.substr(chunk.offset, chunk.bytes)) {}

  LeafColumn read() {
    if (!chunk_.unknown_codec.empty()) {
      throw Error(where_ + " is compressed with " + chunk_.unknown_codec +
                  ", which isn't read; expected snappy, gzip, zstd, LZ4_RAW or none: write the file again");
    }
    out_.values.kind = column_.kind;
    while (out_.entries < chunk_.values) {
      ThriftReader in(pages_, where_ + " has a page header that");
      const PageHeader header = read_page_header(in);
      pages_.remove_prefix(in.position());
      if (header.packed_bytes < 0 || header.unpacked_bytes < 0 ||
          static_cast<std::uint64_t>(header.packed_bytes) > pages_.size())
        fail("has a page that reaches beyond the column's end");
      const std::string_view packed = pages_.substr(0, static_cast<std::size_t>(header.packed_bytes));
      pages_.remove_prefix(packed.size());
      if (header.has_checksum && header.checksum != checksum_of(packed))
        fail("has a page whose checksum is wrong");
      if (header.type == PageHeader::kDictionary) {
        read_dictionary(header, packed);
      } else if (header.type == PageHeader::kData || header.type == PageHeader::kDataV2) {
        read_data(header, packed);
      } else if (header.type != PageHeader::kIndex) {
        fail("has a page of an unknown type");
      }
    }
    out_.values.size = stored_values(out_.values);
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(where_ + " " + what + "; the file is damaged, fetch or write it again");
  }

  static std::uint32_t checksum_of(std::string_view bytes) {
    return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  }

  std::size_t stored_values(const Array& array) const {
    switch (column_.kind) {
      case Array::Kind::kDouble: return array.doubles.size();
      case Array::Kind::kString: return array.strings.size();
      default: return array.integers.size();
    }
  }

  // The page's bytes, unpacked and kept for the strings that point into them.
  std::string_view keep(Codec codec, std::string_view packed, std::uint64_t size) {
    auto bytes = std::make_shared<const std::string>(unpack(codec, packed, size, name_, limits_));
    out_.values.owners.push_back(bytes);
    return *bytes;
  }

  std::size_t checked_count(const PageHeader& header) const {
    if (header.values < 0 || static_cast<std::uint64_t>(header.values) > chunk_.values - out_.entries)
      fail("has more values in its pages than the footer says (" + std::to_string(chunk_.values) + ")");
    return static_cast<std::size_t>(header.values);
  }

  void read_dictionary(const PageHeader& header, std::string_view packed) {
    if (header.values < 0) fail("has a dictionary of a negative size");
    if (header.encoding != static_cast<int>(Encoding::kPlain) &&
        header.encoding != static_cast<int>(Encoding::kPlainDictionary))
      fail("has a dictionary in an unknown encoding");
    ByteReader in(keep(chunk_.codec, packed, static_cast<std::uint64_t>(header.unpacked_bytes)), where_);
    dictionary_ = Array{};
    read_plain(in, static_cast<std::size_t>(header.values), dictionary_);
    has_dictionary_ = true;
  }

  void read_data(const PageHeader& header, std::string_view packed) {
    const std::size_t count = checked_count(header);
    if (header.type == PageHeader::kData) {
      if (header.level_encodings != static_cast<int>(Encoding::kRle))
        fail("has levels in the old BIT_PACKED encoding, which isn't read");
      ByteReader in(keep(chunk_.codec, packed, static_cast<std::uint64_t>(header.unpacked_bytes)), where_);
      const auto levels = [&](int most) {
        return most == 0 ? std::string_view() : in.take(in.take_number(4));
      };
      const std::string_view repetition = levels(column_.repetition_level);
      const std::string_view definition = levels(column_.definition_level);
      read_values(in, header, read_levels(repetition, definition, count));
      return;
    }
    if (header.repetition_bytes < 0 || header.definition_bytes < 0) fail("has levels of a negative length");
    ByteReader levels(packed, where_);
    const std::string_view repetition = levels.take(static_cast<std::uint64_t>(header.repetition_bytes));
    const std::string_view definition = levels.take(static_cast<std::uint64_t>(header.definition_bytes));
    const std::uint64_t level_bytes = repetition.size() + definition.size();
    const auto unpacked = static_cast<std::uint64_t>(header.unpacked_bytes);
    if (unpacked < level_bytes) fail("has a page that is shorter than its levels");
    const Codec codec = header.is_compressed ? chunk_.codec : Codec::kNone;
    ByteReader in(keep(codec, levels.take(levels.left()), unpacked - level_bytes), where_);
    read_values(in, header, read_levels(repetition, definition, count));
  }

  void append_levels(std::string_view bytes, int most, std::size_t count,
                     std::vector<std::uint8_t>& out) const {
    if (most == 0) return;
    ByteReader in(bytes, where_);
    for (const std::uint32_t level : decode_rle(in, std::bit_width(static_cast<unsigned>(most)), count)) {
      if (level > static_cast<std::uint32_t>(most)) fail("has a level beyond the schema's");
      out.push_back(static_cast<std::uint8_t>(level));
    }
  }

  // Appends the levels of a page; how many of its values are there, not null.
  std::size_t read_levels(std::string_view repetition, std::string_view definition, std::size_t count) {
    const std::size_t begin = out_.definition_levels.size();
    append_levels(repetition, column_.repetition_level, count, out_.repetition_levels);
    append_levels(definition, column_.definition_level, count, out_.definition_levels);
    out_.entries += count;
    if (column_.definition_level == 0) return count;
    std::size_t present = 0;
    for (std::size_t i = begin; i < out_.definition_levels.size(); ++i)
      present += out_.definition_levels[i] == column_.definition_level ? 1 : 0;
    return present;
  }

  void read_values(ByteReader& in, const PageHeader& header, std::size_t count) {
    if (count == 0) return;
    const bool is_string = column_.kind == Array::Kind::kString;
    switch (static_cast<Encoding>(header.encoding)) {
      case Encoding::kPlain: return read_plain(in, count, out_.values);
      case Encoding::kPlainDictionary:
      case Encoding::kRleDictionary: return read_indices(in, count);
      case Encoding::kRle:
        if (column_.physical != Physical::kBoolean) break;
        in.take(4);  // the length of what follows
        for (const std::uint32_t value : decode_rle(in, 1, count)) out_.values.integers.push_back(value);
        return;
      case Encoding::kDeltaBinaryPacked:
        if (column_.physical != Physical::kInt32 && column_.physical != Physical::kInt64) break;
        for (const std::int64_t value : decode_delta(in, count))
          out_.values.integers.push_back(narrowed(value));
        return;
      case Encoding::kDeltaLengthByteArray:
        if (is_string) return decode_delta_length_strings(in, count, out_.values);
        break;
      case Encoding::kDeltaByteArray:
        if (is_string) {
          const std::uint64_t most = limits_.ratio_free_bytes + limits_.max_ratio * in.left();
          return decode_delta_strings(in, count, most, out_.values);
        }
        break;
      case Encoding::kBitPacked:
      case Encoding::kByteStreamSplit: break;
    }
    throw Error(where_ + " has values in encoding " + std::to_string(header.encoding) +
                ", which isn't read for its type; write the file with the usual encodings");
  }

  // 32-bit columns wrap around in 32 bits.
  std::int64_t narrowed(std::int64_t value) const {
    if (column_.physical != Physical::kInt32) return value;
    if (column_.is_uint32) return static_cast<std::uint32_t>(value);
    return static_cast<std::int32_t>(value);
  }

  void read_plain(ByteReader& in, std::size_t count, Array& out) const {
    switch (column_.physical) {
      case Physical::kBytes: return decode_plain_strings(in, count, out);
      case Physical::kBoolean: {
        const std::string_view bits = in.take((count + 7) / 8);
        for (std::size_t i = 0; i < count; ++i)
          out.integers.push_back((static_cast<unsigned char>(bits[i / 8]) >> (i % 8)) & 1);
        return;
      }
      case Physical::kInt32:
      case Physical::kInt64: {
        const std::size_t width = column_.physical == Physical::kInt32 ? 4 : 8;
        if (count > in.left() / width) fail("ends before its values do");
        for (std::size_t i = 0; i < count; ++i)
          out.integers.push_back(narrowed(static_cast<std::int64_t>(in.take_number(width))));
        return;
      }
      case Physical::kFloat:
      case Physical::kDouble: {
        const bool is_float = column_.physical == Physical::kFloat;
        if (count > in.left() / (is_float ? 4 : 8)) fail("ends before its values do");
        for (std::size_t i = 0; i < count; ++i) {
          out.doubles.push_back(is_float ? std::bit_cast<float>(static_cast<std::uint32_t>(in.take_number(4)))
                                         : std::bit_cast<double>(in.take_number(8)));
        }
        return;
      }
      case Physical::kInt96:
      case Physical::kFixedBytes: break;
    }
    fail("is of a type that isn't read");
  }

  void read_indices(ByteReader& in, std::size_t count) {
    if (!has_dictionary_) fail("refers to a dictionary that isn't there");
    const std::size_t size = stored_values(dictionary_);
    const unsigned width = in.take_byte();
    for (const std::uint32_t index : decode_rle(in, width, count)) {
      if (index >= size) fail("refers to a value beyond its dictionary");
      switch (column_.kind) {
        case Array::Kind::kDouble: out_.values.doubles.push_back(dictionary_.doubles[index]); break;
        case Array::Kind::kString: out_.values.strings.push_back(dictionary_.strings[index]); break;
        default: out_.values.integers.push_back(dictionary_.integers[index]);
      }
    }
  }

  const ColumnChunk& chunk_;
  const SchemaNode& column_;
  const std::string& name_;
  std::string where_;
  std::string_view pages_;
  ExpansionLimits limits_;
  Array dictionary_;
  bool has_dictionary_ = false;
  LeafColumn out_;
};

}  // namespace

LeafColumn read_parquet_column(std::string_view file, const ColumnChunk& chunk, const SchemaNode& column,
                               const std::string& name) {
  return ColumnReader(file, chunk, column, name).read();
}

}  // namespace lorikeet::data::columnar
