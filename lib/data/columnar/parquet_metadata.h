#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/columnar/array.h"
#include "data/columnar/codec.h"

// What a Parquet file's footer says. Source: apache/parquet-format, README.md and parquet.thrift.
namespace lorikeet::data::columnar {

enum class Repetition : std::uint8_t { kRequired = 0, kOptional = 1, kRepeated = 2 };

enum class Physical : std::uint8_t {
  kBoolean = 0,
  kInt32 = 1,
  kInt64 = 2,
  kInt96 = 3,
  kFloat = 4,
  kDouble = 5,
  kBytes = 6,
  kFixedBytes = 7,
};

/// A column or a group of columns.
struct SchemaNode {
  std::string name;
  Repetition repetition = Repetition::kRequired;
  int definition_level = 0;  ///< of a value that is there
  int repetition_level = 0;
  std::vector<SchemaNode> children;  ///< empty: a column
  bool is_list = false;              ///< annotated as LIST or MAP
  std::size_t column = 0;            ///< of a column, its place among all of them
  Physical physical = Physical::kBytes;
  /// What its values are read as; kNull for types that rows can't hold: bytes that aren't text, dates, times,
  /// decimals, 96-bit integers, half precision.
  Array::Kind kind = Array::Kind::kNull;
  bool is_uint32 = false;

  bool is_column() const { return children.empty(); }
};

struct ColumnChunk {
  Physical physical = Physical::kBytes;
  Codec codec = Codec::kNone;
  std::string unknown_codec;  ///< the name of one that isn't read; "" otherwise
  std::uint64_t values = 0;   ///< with nulls
  std::uint64_t offset = 0;   ///< of its first page
  std::uint64_t bytes = 0;
};

struct RowGroup {
  std::uint64_t rows = 0;
  std::vector<ColumnChunk> columns;
};

struct ParquetMetadata {
  SchemaNode root;
  std::vector<RowGroup> row_groups;
};

/// The footer of the file whose bytes are `file`; `name` is the file's. Throws Error for whatever doesn't fit
/// together: magic numbers, the footer's length, the schema's tree, columns of row groups, offsets beyond the
/// file, row counts, a number of values beyond what so many bytes can hold.
ParquetMetadata read_parquet_metadata(std::string_view file, const std::string& name);

}  // namespace lorikeet::data::columnar
