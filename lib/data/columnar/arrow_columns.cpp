#include "data/columnar/arrow_columns.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data::columnar {
namespace {

constexpr std::size_t kViewBytes = 16;
constexpr std::size_t kInlineBytes = 12;

template <typename T>
T value_in(std::string_view bytes, std::size_t i) {
  T value{};
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

bool bit_of(std::string_view bits, std::size_t i) {
  return (static_cast<unsigned char>(bits[i / 8]) >> (i % 8) & 1) != 0;
}

std::size_t bytes_for_bits(std::size_t bits) { return (bits + 7) / 8; }

template <typename Signed, typename Unsigned>
std::int64_t widened(std::string_view bytes, bool is_signed, std::size_t i) {
  if (is_signed) return value_in<Signed>(bytes, i);
  return value_in<Unsigned>(bytes, i);
}

std::int64_t integer_in(std::string_view bytes, std::size_t width, bool is_signed, std::size_t i) {
  switch (width) {
    case 1: return widened<std::int8_t, std::uint8_t>(bytes, is_signed, i);
    case 2: return widened<std::int16_t, std::uint16_t>(bytes, is_signed, i);
    case 4: return widened<std::int32_t, std::uint32_t>(bytes, is_signed, i);
    default: return value_in<std::int64_t>(bytes, i);
  }
}

/// Reads columns in the order in which a batch has their nodes and buffers.
class BatchReader {
 public:
  BatchReader(const ArrowBatch& batch, const ArrowDictionaries& dictionaries, const std::string& name)
      : batch_(batch), dictionaries_(dictionaries), name_(name) {}

  std::optional<Array> read(const ArrowField& field) {
    if (node_ == batch_.nodes.size()) fail(field, "isn't there in a part of the table");
    const ArrowBatch::Node node = batch_.nodes[node_++];
    if (field.dictionary) return read_coded(field, node);
    if (!field.kind) {
      skip(field);
      return std::nullopt;
    }
    Array out;
    out.kind = *field.kind;
    out.size = node.values;
    if (field.layout == ArrowLayout::kNull) return out;
    read_validity(field, node, out);
    switch (field.layout) {
      case ArrowLayout::kBits: read_bits(field, out); break;
      case ArrowLayout::kFixed: read_numbers(field, out); break;
      case ArrowLayout::kText: read_text(field, out); break;
      case ArrowLayout::kViews: read_views(field, out); break;
      case ArrowLayout::kList:
        out.offsets = read_offsets(field, out, UINT64_MAX);
        return read_elements(field, std::move(out));
      case ArrowLayout::kFixedList:
        for (std::size_t i = 0; i <= out.size; ++i) out.offsets.push_back(i * field.width);
        return read_elements(field, std::move(out));
      default: return read_members(field, std::move(out));
    }
    return out;
  }

 private:
  [[noreturn]] void fail(const ArrowField& field, const std::string& what) const {
    throw Error("[data] '" + name_ + "': column '" + escape_control(field.name) + "' " + what +
                "; the file is damaged, fetch or write it again");
  }

  /// The next buffer's bytes, at least `least`, kept alive by `owner`.
  std::string_view buffer(const ArrowField& field, std::uint64_t least, Array& owner) {
    if (buffer_ == batch_.buffers.size()) fail(field, "has too few buffers");
    const ArrowBatch::Buffer place = batch_.buffers[buffer_++];
    std::string_view bytes = batch_.body.substr(place.offset, place.bytes);
    if (batch_.codec && !bytes.empty()) bytes = unpacked(field, bytes, owner);
    if (bytes.size() < least)
      fail(field,
           "has " + std::to_string(bytes.size()) + " bytes for values that take " + std::to_string(least));
    return bytes;
  }

  std::string_view unpacked(const ArrowField& field, std::string_view bytes, Array& owner) const {
    constexpr std::size_t kLength = sizeof(std::int64_t);
    if (bytes.size() < kLength) fail(field, "has a compressed buffer without a length");
    const auto length = value_in<std::int64_t>(bytes, 0);
    bytes.remove_prefix(kLength);
    if (length == -1) return bytes;  // compressing it would have made it longer
    if (length < 0) fail(field, "has a compressed buffer of a negative length");
    owner.owners.push_back(std::make_shared<const std::string>(
        unpack(*batch_.codec, bytes, static_cast<std::uint64_t>(length), name_, ExpansionLimits{})));
    return *owner.owners.back();
  }

  void read_validity(const ArrowField& field, const ArrowBatch::Node& node, Array& out) {
    const std::string_view bits = buffer(field, node.nulls > 0 ? bytes_for_bits(out.size) : 0, out);
    if (node.nulls == 0) return;
    out.valid.resize(out.size);
    for (std::size_t i = 0; i < out.size; ++i) out.valid[i] = bit_of(bits, i) ? 1 : 0;
  }

  void read_bits(const ArrowField& field, Array& out) {
    const std::string_view bits = buffer(field, bytes_for_bits(out.size), out);
    out.integers.resize(out.size);
    for (std::size_t i = 0; i < out.size; ++i) out.integers[i] = bit_of(bits, i) ? 1 : 0;
  }

  void read_numbers(const ArrowField& field, Array& out) {
    const std::string_view values = buffer(field, std::uint64_t{out.size} * field.width, out);
    if (out.kind == Array::Kind::kDouble) {
      out.doubles.resize(out.size);
      for (std::size_t i = 0; i < out.size; ++i)
        out.doubles[i] = field.width == 4 ? value_in<float>(values, i) : value_in<double>(values, i);
      return;
    }
    out.integers.resize(out.size);
    for (std::size_t i = 0; i < out.size; ++i)
      out.integers[i] = integer_in(values, field.width, out.kind == Array::Kind::kInteger, i);
  }

  // Offsets of `out.size` values into something of `end` elements.
  std::vector<std::size_t> read_offsets(const ArrowField& field, Array& out, std::uint64_t end) {
    std::vector<std::size_t> offsets(out.size + 1, 0);
    if (out.size == 0) {
      buffer(field, 0, out);
      return offsets;
    }
    const std::string_view bytes = buffer(field, (std::uint64_t{out.size} + 1) * field.width, out);
    std::int64_t before = 0;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const std::int64_t offset = integer_in(bytes, field.width, true, i);
      if (offset < before || static_cast<std::uint64_t>(offset) > end)
        fail(field, "has a value that ends before it begins, or outside of the file");
      before = offset;
      offsets[i] = static_cast<std::size_t>(offset);
    }
    return offsets;
  }

  void read_text(const ArrowField& field, Array& out) {
    const std::vector<std::size_t> offsets = read_offsets(field, out, UINT64_MAX);
    const std::string_view characters = buffer(field, offsets.back(), out);
    out.strings.reserve(out.size);
    for (std::size_t i = 0; i < out.size; ++i)
      out.strings.push_back(characters.substr(offsets[i], offsets[i + 1] - offsets[i]));
  }

  // A view is a length, and then up to 12 characters, or their first four, a buffer's number and the place.
  void read_views(const ArrowField& field, Array& out) {
    const std::string_view views = buffer(field, std::uint64_t{out.size} * kViewBytes, out);
    std::vector<std::string_view> buffers;
    for (std::uint64_t k = next_view_buffers(field); k > 0; --k) buffers.push_back(buffer(field, 0, out));
    out.strings.resize(out.size);
    for (std::size_t i = 0; i < out.size; ++i) {
      if (out.is_null(i)) continue;
      const std::string_view view = views.substr(i * kViewBytes, kViewBytes);
      const auto length = value_in<std::uint32_t>(view, 0);
      if (length <= kInlineBytes) {
        out.strings[i] = view.substr(sizeof length, length);
        continue;
      }
      const auto number = value_in<std::uint32_t>(view, 2), offset = value_in<std::uint32_t>(view, 3);
      if (number >= buffers.size() || offset > buffers[number].size() ||
          length > buffers[number].size() - offset)
        fail(field, "has a value outside of the file");
      out.strings[i] = buffers[number].substr(offset, length);
    }
  }

  std::uint64_t next_view_buffers(const ArrowField& field) {
    if (view_column_ == batch_.view_buffers.size()) fail(field, "has an unknown number of buffers");
    return batch_.view_buffers[view_column_++];
  }

  std::optional<Array> read_elements(const ArrowField& field, Array out) {
    std::optional<Array> elements = read(field.children[0]);
    if (!elements) return std::nullopt;
    if (out.offsets.back() > elements->size) fail(field, "has lists longer than their elements");
    out.children.push_back(*std::move(elements));
    return out;
  }

  std::optional<Array> read_members(const ArrowField& field, Array out) {
    for (const ArrowField& child : field.children) {
      std::optional<Array> member = read(child);
      if (!member) continue;
      if (member->size < out.size) fail(child, "has fewer values than there are rows");
      out.names.push_back(child.name);
      out.children.push_back(*std::move(member));
    }
    if (out.children.empty() && !field.children.empty()) return std::nullopt;
    return out;
  }

  std::optional<Array> read_coded(const ArrowField& field, const ArrowBatch::Node& node) {
    ArrowField index;
    index.name = field.name;
    index.layout = ArrowLayout::kFixed;
    index.width = field.index_width;
    index.kind = field.index_is_signed ? Array::Kind::kInteger : Array::Kind::kUnsigned;
    Array codes;
    codes.kind = *index.kind;
    codes.size = node.values;
    read_validity(index, node, codes);
    read_numbers(index, codes);
    if (!field.kind || !may_be_dictionary(*field.kind)) return std::nullopt;
    const auto found = dictionaries_.find(*field.dictionary);
    if (found == dictionaries_.end()) fail(field, "has a dictionary that comes later, or never");
    const Array& values = *found->second;
    Array out;
    out.kind = values.kind;
    out.size = codes.size;
    out.owners = values.owners;
    out.valid.assign(out.size, 1);
    for (std::size_t i = 0; i < out.size; ++i) {
      const auto code = static_cast<std::uint64_t>(codes.integers[i]);
      if (!codes.is_null(i) && code >= values.size)
        fail(field,
             "has value " + std::to_string(code) + " of a dictionary of " + std::to_string(values.size));
      const bool valid = !codes.is_null(i) && !values.is_null(static_cast<std::size_t>(code));
      out.valid[i] = valid ? 1 : 0;
      const auto pick = [&](const auto& from, auto& to) {
        if (!from.empty()) to.push_back(valid ? from[static_cast<std::size_t>(code)] : from[0]);
      };
      pick(values.integers, out.integers);
      pick(values.doubles, out.doubles);
      pick(values.strings, out.strings);
    }
    return out;
  }

  // Passes over what a column that isn't read has, with all inside of it.
  void skip(const ArrowField& field) {
    std::uint64_t buffers = 1;
    switch (field.layout) {
      case ArrowLayout::kNull:
      case ArrowLayout::kRunEnds: buffers = 0; break;
      case ArrowLayout::kBits:
      case ArrowLayout::kFixed:
      case ArrowLayout::kList:
      case ArrowLayout::kDenseUnion: buffers = 2; break;
      case ArrowLayout::kText:
      case ArrowLayout::kListViews: buffers = 3; break;
      case ArrowLayout::kViews: buffers = 2 + next_view_buffers(field); break;
      case ArrowLayout::kFixedList:
      case ArrowLayout::kStruct:
      case ArrowLayout::kSparseUnion: break;
    }
    if (buffers > batch_.buffers.size() - buffer_) fail(field, "has too few buffers");
    buffer_ += static_cast<std::size_t>(buffers);
    for (const ArrowField& child : field.children) {
      if (node_ == batch_.nodes.size()) fail(child, "isn't there in a part of the table");
      ++node_;
      ArrowField plain = child;
      if (child.dictionary) {
        plain = {};
        plain.layout = ArrowLayout::kFixed;
      }
      skip(plain);
    }
  }

  const ArrowBatch& batch_;
  const ArrowDictionaries& dictionaries_;
  const std::string& name_;
  std::size_t node_ = 0;
  std::size_t buffer_ = 0;
  std::size_t view_column_ = 0;
};

template <typename T>
void append(std::vector<T>& values, const std::vector<T>& more) {
  values.insert(values.end(), more.begin(), more.end());
}

}  // namespace

Array read_arrow_rows(const std::vector<ArrowField>& columns, const ArrowBatch& batch,
                      const ArrowDictionaries& dictionaries, const std::string& name) {
  BatchReader reader(batch, dictionaries, name);
  Array rows;
  rows.kind = Array::Kind::kStruct;
  rows.size = batch.rows;
  for (const ArrowField& column : columns) {
    std::optional<Array> values = reader.read(column);
    if (!values) continue;
    if (values->size != rows.size) {
      throw Error("[data] '" + name + "': column '" + escape_control(column.name) + "' has " +
                  std::to_string(values->size) + " values in a part of " + std::to_string(rows.size) +
                  " rows; the file is damaged, fetch or write it again");
    }
    rows.names.push_back(column.name);
    rows.children.push_back(*std::move(values));
  }
  return rows;
}

bool may_be_dictionary(Array::Kind kind) {
  return kind == Array::Kind::kString || kind == Array::Kind::kInteger || kind == Array::Kind::kUnsigned ||
         kind == Array::Kind::kDouble || kind == Array::Kind::kBool;
}

void append_values(Array& values, const Array& more) {
  if (!values.valid.empty() || !more.valid.empty()) {
    values.valid.resize(values.size, 1);
    if (more.valid.empty()) {
      values.valid.resize(values.size + more.size, 1);
    } else {
      append(values.valid, more.valid);
    }
  }
  values.size += more.size;
  append(values.integers, more.integers);
  append(values.doubles, more.doubles);
  append(values.strings, more.strings);
  append(values.owners, more.owners);
}

}  // namespace lorikeet::data::columnar
