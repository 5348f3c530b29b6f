#pragma once

#include <map>
#include <memory>

#include "data/columnar/parquet_metadata.h"
#include "data/columnar/table_file.h"

namespace lorikeet::data::columnar {

/// A Parquet file (apache/parquet-format): a row is an object of its columns. Read are strings, numbers,
/// booleans, lists and structs of them, compressed with snappy, gzip, zstd, LZ4_RAW or not at all; columns of
/// other types are left out of the rows.
class ParquetFile final : public TableFile {
 public:
  /// Reads and checks the footer. Throws Error where it doesn't fit together or there is no row; damage of
  /// the pages shows when rows are parsed.
  ParquetFile(FileBytes file, std::shared_ptr<ChunkCache> cache);

 private:
  Array decode(std::size_t chunk) const override;

  ParquetMetadata metadata_;
  std::map<std::size_t, const SchemaNode*> columns_;  // those that are read
};

}  // namespace lorikeet::data::columnar
