#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/columnar/array.h"
#include "data/columnar/codec.h"
#include "data/columnar/flatbuffer.h"

// The descriptions in Arrow's IPC format (https://arrow.apache.org/docs/format/Columnar.html, Schema.fbs and
// Message.fbs): what lies where, before any value is read.
namespace lorikeet::data::columnar {

/// How the values of a column lie in its buffers.
enum class ArrowLayout : std::uint8_t {
  kNull,         ///< no buffer
  kBits,         ///< validity, one bit a value
  kFixed,        ///< validity, `width` bytes a value
  kText,         ///< validity, offsets of `width` bytes, characters
  kViews,        ///< validity, views of 16 bytes, any number of further buffers
  kList,         ///< validity, offsets of `width` bytes; one child
  kFixedList,    ///< validity; one child of `width` values a list
  kStruct,       ///< validity; children
  kListViews,    ///< validity, offsets, sizes; one child
  kSparseUnion,  ///< types; children
  kDenseUnion,   ///< types, offsets; children
  kRunEnds,      ///< nothing; two children
};

struct ArrowField {
  std::string name;
  ArrowLayout layout = ArrowLayout::kNull;
  std::size_t width = 0;
  /// What its values are read as; nullopt for types that rows leave out.
  std::optional<Array::Kind> kind = Array::Kind::kNull;
  bool is_float = false;  ///< of kDouble: `width` bytes each
  std::vector<ArrowField> children;
  /// The dictionary that the values are numbers into: numbers of `index_width` bytes then lie in a column of
  /// kFixed layout, and all above tells of the dictionary's values.
  std::optional<std::int64_t> dictionary;
  std::size_t index_width = 0;
  bool index_is_signed = true;
};

/// A part of a table: which of its bytes are which buffer.
struct ArrowBatch {
  struct Node {
    std::uint64_t values = 0;
    std::uint64_t nulls = 0;
  };
  struct Buffer {
    std::uint64_t offset = 0;  ///< in the body
    std::uint64_t bytes = 0;
  };
  std::uint64_t rows = 0;
  std::vector<Node> nodes;  ///< one a column, nested ones in front of their children
  std::vector<Buffer> buffers;
  std::vector<std::uint64_t> view_buffers;  ///< for each column of kViews, the further buffers
  std::optional<Codec> codec;               ///< of each buffer, behind 8 bytes with its unpacked length
  std::string_view body;
};

/// One message of a file or stream.
struct ArrowMessage {
  enum class Kind : std::uint8_t { kSchema, kDictionary, kBatch, kOther };
  Kind kind = Kind::kOther;
  FlatTable header;
  std::string_view body;
  std::size_t end = 0;  ///< the next message's place
};

/// The message at `place` of `bytes`; nullopt at the end. Throws Error if it doesn't fit the bytes. `name` is
/// the file's and must outlive the result, as the bytes must.
std::optional<ArrowMessage> read_arrow_message(std::string_view bytes, std::size_t place,
                                               const std::string& name);

/// The columns that a schema message tells of. Throws Error for big-endian files, and for more columns or
/// deeper ones than any table has.
std::vector<ArrowField> read_arrow_schema(const FlatTable& schema, const std::string& name);

/// The buffers of a record batch, which is the message itself or a part of a dictionary's.
ArrowBatch read_arrow_batch(const FlatTable& batch, std::string_view body, const std::string& name);

}  // namespace lorikeet::data::columnar
