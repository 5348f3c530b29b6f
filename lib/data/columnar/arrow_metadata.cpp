#include "data/columnar/arrow_metadata.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data::columnar {
namespace {

constexpr std::uint32_t kContinuation = 0xFFFFFFFF;
constexpr unsigned kMostDepth = 32;
constexpr std::size_t kMostFields = 10'000;
// As in Parquet: bits and nulls are cheap to write down, so that a small file could claim to hold billions.
constexpr std::uint64_t kFreeValues = 1 << 22;
constexpr std::uint64_t kMostValuesPerByte = 200;

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw Error("[data] '" + name + "': " + what + "; the file is damaged, fetch or write it again");
}

template <typename T>
T number_at(std::string_view bytes, std::size_t place) {
  T value{};
  std::memcpy(&value, bytes.data() + place, sizeof value);
  return value;
}

struct IntegerType {
  std::size_t width = 0;
  bool is_signed = true;
};

IntegerType read_integer_type(const std::optional<FlatTable>& type, const std::string& name) {
  const auto bits = type ? type->number<std::int32_t>(0, 0) : 32;
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
    fail(name, "a column of integers of " + std::to_string(bits) + " bits");
  return {static_cast<std::size_t>(bits) / 8, type ? type->number<std::uint8_t>(1, 0) != 0 : true};
}

void set(ArrowField& field, ArrowLayout layout, std::size_t width, std::optional<Array::Kind> kind) {
  field.layout = layout;
  field.width = width;
  field.kind = kind;
}

std::size_t positive(std::int32_t value, const char* what, const std::string& name) {
  if (value < 0) fail(name, std::string("a negative ") + what);
  return static_cast<std::size_t>(value);
}

// Numbers of Schema.fbs's union Type.
void read_type(const FlatTable& from, ArrowField& field, const std::string& name) {
  using Kind = Array::Kind;
  const std::optional<FlatTable> type = from.table(3);
  const auto integer = [&](unsigned member) { return type ? type->number<std::int32_t>(member, 0) : 0; };
  const auto short_integer = [&](unsigned member, std::int16_t absent) {
    return type ? type->number<std::int16_t>(member, absent) : absent;
  };
  switch (const auto number = from.number<std::uint8_t>(2, 0); number) {
    case 1: return set(field, ArrowLayout::kNull, 0, Kind::kNull);
    case 2: {
      const IntegerType found = read_integer_type(type, name);
      return set(field, ArrowLayout::kFixed, found.width, found.is_signed ? Kind::kInteger : Kind::kUnsigned);
    }
    case 3: {
      const auto precision = short_integer(0, 0);  // half, single, double
      if (precision < 0 || precision > 2) fail(name, "a column of floats of unknown precision");
      const std::size_t width = std::size_t{2} << precision;
      return set(field, ArrowLayout::kFixed, width, width > 2 ? std::optional(Kind::kDouble) : std::nullopt);
    }
    case 4: return set(field, ArrowLayout::kText, 4, std::nullopt);  // bytes
    case 5: return set(field, ArrowLayout::kText, 4, Kind::kString);
    case 6: return set(field, ArrowLayout::kBits, 0, Kind::kBool);
    case 7: {  // decimals
      const std::int32_t bits = type ? type->number<std::int32_t>(2, 128) : 128;
      return set(field, ArrowLayout::kFixed, positive(bits, "number of bits", name) / 8, std::nullopt);
    }
    case 8: return set(field, ArrowLayout::kFixed, short_integer(0, 1) == 0 ? 4 : 8, std::nullopt);  // dates
    case 9: {  // times of day
      const std::int32_t bits = type ? type->number<std::int32_t>(1, 32) : 32;
      return set(field, ArrowLayout::kFixed, bits == 64 ? 8 : 4, std::nullopt);
    }
    case 10:  // points in time
    case 18:  // durations
      return set(field, ArrowLayout::kFixed, 8, std::nullopt);
    case 11: {  // intervals: year and month; day and time; month, day and nanoseconds
      const auto unit = short_integer(0, 0);
      return set(field, ArrowLayout::kFixed, unit == 0 ? 4 : unit == 1 ? 8 : 16, std::nullopt);
    }
    case 12:
    case 17: return set(field, ArrowLayout::kList, 4, Kind::kList);  // 17: maps, lists of key and value
    case 13: return set(field, ArrowLayout::kStruct, 0, Kind::kStruct);
    case 14:
      return set(field, short_integer(0, 0) == 0 ? ArrowLayout::kSparseUnion : ArrowLayout::kDenseUnion, 0,
                 std::nullopt);
    case 15: return set(field, ArrowLayout::kFixed, positive(integer(0), "width", name), std::nullopt);
    case 16: return set(field, ArrowLayout::kFixedList, positive(integer(0), "length", name), Kind::kList);
    case 19: return set(field, ArrowLayout::kText, 8, std::nullopt);
    case 20: return set(field, ArrowLayout::kText, 8, Kind::kString);
    case 21: return set(field, ArrowLayout::kList, 8, Kind::kList);
    case 22: return set(field, ArrowLayout::kRunEnds, 0, std::nullopt);
    case 23: return set(field, ArrowLayout::kViews, 16, std::nullopt);
    case 24: return set(field, ArrowLayout::kViews, 16, Kind::kString);
    case 25:
    case 26: return set(field, ArrowLayout::kListViews, 0, std::nullopt);
    default:
      throw Error("[data] '" + name + "': column '" + escape_control(field.name) + "' has the type number " +
                  std::to_string(number) + " of Arrow, which isn't known here; write the file without it");
  }
}

void check_children(const ArrowField& field, const std::string& name) {
  const std::size_t count = field.children.size();
  const bool one = field.layout == ArrowLayout::kList || field.layout == ArrowLayout::kFixedList ||
                   field.layout == ArrowLayout::kListViews;
  const bool any = field.layout == ArrowLayout::kStruct || field.layout == ArrowLayout::kSparseUnion ||
                   field.layout == ArrowLayout::kDenseUnion;
  const std::size_t expected = one ? 1 : field.layout == ArrowLayout::kRunEnds ? 2 : 0;
  if (!any && count != expected)
    fail(name, "column '" + escape_control(field.name) + "' has " + std::to_string(count) +
                   " columns inside, expected " + std::to_string(expected));
}

ArrowField read_field(const FlatTable& from, unsigned depth, std::size_t& fields, const std::string& name) {
  if (depth > kMostDepth) fail(name, "columns nested deeper than " + std::to_string(kMostDepth));
  if (++fields > kMostFields) fail(name, "more than " + std::to_string(kMostFields) + " columns");
  ArrowField field;
  field.name = from.text(0);
  if (!is_utf8(field.name)) fail(name, "a column's name that is not UTF-8");
  read_type(from, field, name);
  const FlatVector children = from.vector(5, sizeof(std::uint32_t));
  for (std::size_t i = 0; i < children.size(); ++i)
    field.children.push_back(read_field(children.table(i), depth + 1, fields, name));
  check_children(field, name);
  if (const auto dictionary = from.table(4)) {
    field.dictionary = dictionary->number<std::int64_t>(0, 0);
    const IntegerType index = read_integer_type(dictionary->table(1), name);
    field.index_width = index.width;
    field.index_is_signed = index.is_signed;
  }
  return field;
}

std::uint64_t count_at(std::string_view item, std::size_t place, const std::string& name) {
  const auto value = number_at<std::int64_t>(item, place);
  if (value < 0) fail(name, "a negative length or place");
  return static_cast<std::uint64_t>(value);
}

}  // namespace

std::optional<ArrowMessage> read_arrow_message(std::string_view bytes, std::size_t place,
                                               const std::string& name) {
  constexpr std::size_t kPrefix = 2 * sizeof(std::uint32_t);
  if (place == bytes.size()) return std::nullopt;
  if (bytes.size() - place < kPrefix || number_at<std::uint32_t>(bytes, place) != kContinuation)
    fail(name, "byte " + std::to_string(place) + " begins no message of Arrow's");
  const std::size_t length = number_at<std::uint32_t>(bytes, place + sizeof kContinuation);
  if (length == 0) return std::nullopt;
  std::size_t end = place + kPrefix;
  if (length > bytes.size() - end) fail(name, "the file is cut short inside a message");
  const FlatTable message = FlatTable::root(bytes.substr(end, length), name);
  end += length;
  const auto body_bytes = message.number<std::int64_t>(3, 0);
  if (body_bytes < 0 || static_cast<std::uint64_t>(body_bytes) > bytes.size() - end)
    fail(name, "the file is cut short inside a part of the table");
  const std::string_view body = bytes.substr(end, static_cast<std::size_t>(body_bytes));
  const auto header = message.table(2);
  if (!header) fail(name, "a message without content");
  ArrowMessage out{ArrowMessage::Kind::kOther, *header, body, end + body.size()};
  switch (message.number<std::uint8_t>(1, 0)) {
    case 1: out.kind = ArrowMessage::Kind::kSchema; break;
    case 2: out.kind = ArrowMessage::Kind::kDictionary; break;
    case 3: out.kind = ArrowMessage::Kind::kBatch; break;
    default: break;
  }
  return out;
}

std::vector<ArrowField> read_arrow_schema(const FlatTable& schema, const std::string& name) {
  if (schema.number<std::int16_t>(0, 0) != 0) {
    throw Error("[data] '" + name +
                "' was written with big-endian numbers, which aren't read; write it anew on another machine");
  }
  std::vector<ArrowField> fields;
  std::size_t count = 0;
  const FlatVector found = schema.vector(1, sizeof(std::uint32_t));
  fields.reserve(std::min(found.size(), kMostFields));
  for (std::size_t i = 0; i < found.size(); ++i) fields.push_back(read_field(found.table(i), 0, count, name));
  return fields;
}

ArrowBatch read_arrow_batch(const FlatTable& batch, std::string_view body, const std::string& name) {
  constexpr std::size_t kPair = 2 * sizeof(std::int64_t);
  ArrowBatch out;
  out.body = body;
  const auto rows = batch.number<std::int64_t>(0, 0);
  if (rows < 0) fail(name, "a part with a negative number of rows");
  out.rows = static_cast<std::uint64_t>(rows);
  std::uint64_t values = out.rows;
  const std::uint64_t most = kFreeValues + kMostValuesPerByte * body.size();
  const FlatVector nodes = batch.vector(1, kPair);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::string_view item = nodes.element(i, kPair);
    out.nodes.push_back({count_at(item, 0, name), count_at(item, sizeof(std::int64_t), name)});
    if (out.nodes.back().values > most || values > most) break;
    values += out.nodes.back().values;
  }
  if (values > most || (!out.nodes.empty() && out.nodes.back().values > most))
    fail(name, "a part of the table claims more values than its " + std::to_string(body.size()) +
                   " bytes can hold");
  const FlatVector buffers = batch.vector(2, kPair);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const std::string_view item = buffers.element(i, kPair);
    const ArrowBatch::Buffer buffer{count_at(item, 0, name), count_at(item, sizeof(std::int64_t), name)};
    if (buffer.offset > body.size() || buffer.bytes > body.size() - buffer.offset)
      fail(name, "a part of the table has values outside of its bytes");
    out.buffers.push_back(buffer);
  }
  if (const auto compression = batch.table(3)) {
    const auto codec = compression->number<std::int8_t>(0, 0);
    if (codec != 0 && codec != 1)
      throw Error("[data] '" + name + "' is compressed in a way that isn't known here (number " +
                  std::to_string(codec) + "); write it with lz4, zstd or none");
    out.codec = codec == 0 ? Codec::kLz4Frame : Codec::kZstd;
  }
  const FlatVector views = batch.vector(4, sizeof(std::int64_t));
  for (std::size_t i = 0; i < views.size(); ++i)
    out.view_buffers.push_back(count_at(views.element(i, sizeof(std::int64_t)), 0, name));
  return out;
}

}  // namespace lorikeet::data::columnar
