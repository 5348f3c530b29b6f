#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/columnar/parquet_metadata.h"

namespace lorikeet::data::columnar {

/// The values of one column of a row group as Parquet stores them: levels say which values are there, and
/// where lists begin (Dremel's encoding).
struct LeafColumn {
  std::vector<std::uint8_t> repetition_levels;  ///< one a value or null; empty in columns without lists
  std::vector<std::uint8_t> definition_levels;  ///< empty in columns without nulls
  std::size_t entries = 0;                      ///< values and nulls
  Array values;                                 ///< those that are there, without nulls
};

/// Decodes the pages of `chunk` in `file`. `column` is the chunk's place in the schema, of a kind that is
/// read. Read are data pages of both versions, plain, dictionary-encoded, RLE and delta-encoded. Throws Error
/// naming file and column for pages that are cut, corrupt (by their checksum, where they have one), or of
/// encodings that aren't read, and for another number of values than the footer says.
LeafColumn read_parquet_column(std::string_view file, const ColumnChunk& chunk, const SchemaNode& column,
                               const std::string& name);

}  // namespace lorikeet::data::columnar
