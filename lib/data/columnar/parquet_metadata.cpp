#include "data/columnar/parquet_metadata.h"

#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "data/columnar/thrift.h"

namespace lorikeet::data::columnar {
namespace {

using Type = ThriftReader::Type;

constexpr std::string_view kMagic = "PAR1";
constexpr std::size_t kMostDepth = 32;
// Levels and repeated values may be packed thousand to a byte, so that a small file could claim to hold
// billions: data of such a kind nobody trains on.
constexpr std::uint64_t kFreeValues = 1 << 22;
constexpr std::uint64_t kMostValuesPerByte = 200;

struct Annotation {
  bool list = false, text = false, integer = false, is_signed = true, other = false;
};

struct SchemaElement {
  std::int64_t type = -1, repetition = 0, children = 0;
  std::string name;
  Annotation annotation;
};

void read_converted_type(std::int64_t type, Annotation& out) {
  switch (type) {
    case 0:                           // UTF8
    case 4:                           // ENUM
    case 19: out.text = true; break;  // JSON
    case 1:                           // MAP
    case 2:                           // MAP_KEY_VALUE
    case 3: out.list = true; break;   // LIST
    case 11:                          // UINT_8
    case 12:                          // UINT_16
    case 13:                          // UINT_32
    case 14:
      out.integer = true;
      out.is_signed = false;
      break;
    case 15:
    case 16:
    case 17:
    case 18: out.integer = true; break;  // INT_8 to INT_64
    default: out.other = true;           // decimals, dates, times, BSON, intervals
  }
}

void read_logical_type(ThriftReader& in, Annotation& out) {
  in.read_struct([&](int id, Type type) {
    switch (id) {
      case 1:                           // STRING
      case 4:                           // ENUM
      case 12: out.text = true; break;  // JSON
      case 2:                           // MAP
      case 3: out.list = true; break;   // LIST
      case 11: break;                   // UNKNOWN: always null
      case 10: {                        // INTEGER
        out.integer = true;
        if (type != Type::kStruct) break;
        in.read_struct([&](int field, Type field_type) {
          if (field == 2) {
            out.is_signed = in.read_bool(field_type);
          } else {
            in.skip(field_type);
          }
        });
        return;
      }
      default: out.other = true;  // decimals, dates, times, BSON, UUIDs, half precision
    }
    in.skip(type);
  });
}

SchemaElement read_schema_element(ThriftReader& in) {
  SchemaElement out;
  in.read_struct([&](int id, Type type) {
    switch (id) {
      case 1: out.type = in.read_integer(type); break;
      case 3: out.repetition = in.read_integer(type); break;
      case 4: out.name = in.read_string(type); break;
      case 5: out.children = in.read_integer(type); break;
      case 6: read_converted_type(in.read_integer(type), out.annotation); break;
      case 10:
        if (type == Type::kStruct) {
          read_logical_type(in, out.annotation);
        } else {
          in.skip(type);
        }
        break;
      default: in.skip(type);
    }
  });
  return out;
}

Codec read_codec(std::int64_t codec, std::string& unknown) {
  switch (codec) {
    case 0: return Codec::kNone;
    case 1: return Codec::kSnappy;
    case 2: return Codec::kGzip;
    case 6: return Codec::kZstd;
    case 7: return Codec::kLz4Block;
    case 3: unknown = "LZO"; break;
    case 4: unknown = "brotli"; break;
    case 5: unknown = "Hadoop's LZ4"; break;
    default: unknown = "number " + std::to_string(codec);
  }
  return Codec::kNone;
}

class Reader {
 public:
  Reader(std::string_view file, std::string name) : file_(file), name_(std::move(name)) {}

  ParquetMetadata read() {
    footer_ = footer();
    ThriftReader in(footer_, "[data] '" + name_ + "': the Parquet footer");
    std::int64_t rows = -1;
    std::vector<SchemaElement> schema;
    in.read_struct([&](int id, Type type) {
      if (id == 2 && type == Type::kList) {
        in.read_list([&](Type element) { schema.push_back(read_element(in, element, read_schema_element)); });
      } else if (id == 3) {
        rows = in.read_integer(type);
      } else if (id == 4 && type == Type::kList) {
        in.read_list([&](Type element) {
          out_.row_groups.push_back(
              read_element(in, element, [&](ThriftReader& r) { return read_row_group(r); }));
        });
      } else {
        in.skip(type);
      }
    });
    build_schema(schema);
    check(rows);
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("[data] '" + name_ + "': " + what + "; the file is damaged, fetch or write it again");
  }

  template <typename Read>
  auto read_element(ThriftReader& in, Type type, Read read) -> decltype(read(in)) {
    if (type != Type::kStruct) fail("the Parquet footer has a list of another type than expected");
    return read(in);
  }

  std::string_view footer() {
    constexpr std::size_t kTail = 8;  // the footer's length and the magic number
    if (file_.size() < kMagic.size() + kTail || !file_.ends_with(kMagic)) {
      fail(
          "the Parquet file ends without its footer (expected 'PAR1' as its last four bytes): it is cut "
          "short");
    }
    std::uint32_t length = 0;
    std::memcpy(&length, file_.data() + file_.size() - kTail, sizeof length);
    if (length > file_.size() - kTail - kMagic.size())
      fail("the Parquet footer says that it is " + std::to_string(length) +
           " bytes long, which the file is not");
    data_end_ = file_.size() - kTail - length;
    return file_.substr(static_cast<std::size_t>(data_end_), length);
  }

  ColumnChunk read_column_chunk(ThriftReader& in) {
    ColumnChunk out;
    std::int64_t type = -1, values = -1, bytes = -1, data = -1, dictionary = 0;
    bool elsewhere = false;
    const auto read_metadata = [&](int id, Type field) {
      switch (id) {
        case 1: type = in.read_integer(field); break;
        case 4: out.codec = read_codec(in.read_integer(field), out.unknown_codec); break;
        case 5: values = in.read_integer(field); break;
        case 7: bytes = in.read_integer(field); break;
        case 9: data = in.read_integer(field); break;
        case 11: dictionary = in.read_integer(field); break;
        default: in.skip(field);
      }
    };
    in.read_struct([&](int id, Type field) {
      if (id == 3 && field == Type::kStruct) {
        in.read_struct(read_metadata);
      } else {
        elsewhere = elsewhere || id == 1;
        in.skip(field);
      }
    });
    if (elsewhere) fail("its columns are in other files, which isn't read");
    if (values == 0 && type >= 0 && type <= 7) {  // then it has no pages, wherever they are said to be
      out.physical = static_cast<Physical>(type);
      return out;
    }
    const std::int64_t first = dictionary > 0 && dictionary < data ? dictionary : data;
    const auto end = static_cast<std::int64_t>(data_end_);
    if (type < 0 || type > 7 || values < 0 || first < 4 || bytes < 0 || first > end || bytes > end - first)
      fail("the Parquet footer places a column's pages outside of the file");
    out.physical = static_cast<Physical>(type);
    out.values = static_cast<std::uint64_t>(values);
    out.offset = static_cast<std::uint64_t>(first);
    out.bytes = static_cast<std::uint64_t>(bytes);
    return out;
  }

  RowGroup read_row_group(ThriftReader& in) {
    RowGroup out;
    std::int64_t rows = -1;
    in.read_struct([&](int id, Type type) {
      if (id == 1 && type == Type::kList) {
        in.read_list([&](Type element) {
          out.columns.push_back(
              read_element(in, element, [&](ThriftReader& r) { return read_column_chunk(r); }));
        });
      } else if (id == 3) {
        rows = in.read_integer(type);
      } else {
        in.skip(type);
      }
    });
    if (rows < 0) fail("the Parquet footer has a row group without a number of rows");
    out.rows = static_cast<std::uint64_t>(rows);
    return out;
  }

  void build_schema(const std::vector<SchemaElement>& elements) {
    if (elements.empty()) fail("the Parquet footer has no schema");
    std::size_t next = 0;
    out_.root = build_node(elements, next, nullptr, 0);
    if (next != elements.size() || out_.root.is_column()) fail("the Parquet footer's schema is no tree");
  }

  SchemaNode build_node(const std::vector<SchemaElement>& elements, std::size_t& next,
                        const SchemaNode* parent, std::size_t depth) {
    if (next >= elements.size() || depth > kMostDepth) fail("the Parquet footer's schema is no tree");
    const SchemaElement& element = elements[next++];
    SchemaNode node;
    node.name = element.name;
    if (parent != nullptr) {  // the root repeats nothing, whatever it says
      if (element.repetition < 0 || element.repetition > 2) fail("a column has an unknown repetition");
      node.repetition = static_cast<Repetition>(element.repetition);
      node.definition_level = parent->definition_level + (node.repetition == Repetition::kRequired ? 0 : 1);
      node.repetition_level = parent->repetition_level + (node.repetition == Repetition::kRepeated ? 1 : 0);
    }
    node.is_list = element.annotation.list;
    if (element.children < 0 || element.children > static_cast<std::int64_t>(elements.size()))
      fail("the Parquet footer's schema is no tree");
    std::set<std::string> names;
    for (std::int64_t i = 0; i < element.children; ++i) {
      node.children.push_back(build_node(elements, next, &node, depth + 1));
      if (!is_utf8(node.children.back().name) || !names.insert(node.children.back().name).second)
        fail("the Parquet footer names a column twice, or not in UTF-8");
    }
    if (!node.is_column()) return node;
    if (parent == nullptr) fail("the file has no columns");
    if (element.type < 0 || element.type > 7) fail("a column has an unknown type");
    node.column = columns_.size();
    node.physical = static_cast<Physical>(element.type);
    set_kind(element.annotation, node);
    columns_.push_back(node.physical);
    return node;
  }

  static void set_kind(const Annotation& annotation, SchemaNode& node) {
    if (annotation.other) return;
    switch (node.physical) {
      case Physical::kBoolean: node.kind = Array::Kind::kBool; break;
      case Physical::kInt32:
        node.kind = Array::Kind::kInteger;
        node.is_uint32 = !annotation.is_signed;
        break;
      case Physical::kInt64:
        node.kind = annotation.is_signed ? Array::Kind::kInteger : Array::Kind::kUnsigned;
        break;
      case Physical::kFloat:
      case Physical::kDouble: node.kind = Array::Kind::kDouble; break;
      case Physical::kBytes:
        if (annotation.text) node.kind = Array::Kind::kString;
        break;
      case Physical::kInt96:
      case Physical::kFixedBytes: break;
    }
  }

  void check(std::int64_t rows) const {
    std::uint64_t total = 0;
    const std::uint64_t most_values = kFreeValues + kMostValuesPerByte * file_.size();
    for (const RowGroup& group : out_.row_groups) {
      if (group.columns.size() != columns_.size()) {
        fail("a row group has " + std::to_string(group.columns.size()) + " columns where the schema has " +
             std::to_string(columns_.size()));
      }
      std::uint64_t values = group.rows;
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        if (group.columns[c].physical != columns_[c]) fail("a column has another type than the schema says");
        if (values <= most_values) values += group.columns[c].values;
      }
      if (values > most_values) {
        fail("the Parquet footer claims " + std::to_string(values) +
             " values or more in a row group, more than a file of " + format_bytes(file_.size()) +
             " can hold");
      }
      total += group.rows;
    }
    if (rows < 0 || static_cast<std::uint64_t>(rows) != total) {
      fail("the Parquet footer says " + std::to_string(rows) + " rows, and its row groups have " +
           std::to_string(total));
    }
  }

  std::string_view file_;
  std::string name_;
  std::string_view footer_;
  std::uint64_t data_end_ = 0;  // where the footer begins
  std::vector<Physical> columns_;
  ParquetMetadata out_;
};

}  // namespace

ParquetMetadata read_parquet_metadata(std::string_view file, const std::string& name) {
  Reader reader(file, name);
  return reader.read();
}

}  // namespace lorikeet::data::columnar
