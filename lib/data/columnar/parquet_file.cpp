#include "data/columnar/parquet_file.h"

#include <utility>

#include "data/columnar/parquet_column.h"
#include "data/columnar/parquet_nesting.h"

namespace lorikeet::data::columnar {
namespace {

void find_columns(const SchemaNode& node, std::map<std::size_t, const SchemaNode*>& out) {
  if (node.is_column() && node.kind != Array::Kind::kNull) out[node.column] = &node;
  for (const SchemaNode& child : node.children) find_columns(child, out);
}

}  // namespace

ParquetFile::ParquetFile(FileBytes file, std::shared_ptr<ChunkCache> cache)
    : TableFile(std::move(file), std::move(cache)), metadata_(read_parquet_metadata(bytes(), name())) {
  find_columns(metadata_.root, columns_);
  for (const RowGroup& group : metadata_.row_groups) add_chunk(static_cast<std::size_t>(group.rows));
  require_rows();
}

Array ParquetFile::decode(std::size_t chunk) const {
  const RowGroup& group = metadata_.row_groups[chunk];
  std::map<std::size_t, LeafColumn> columns;
  for (const auto& [number, node] : columns_)
    columns[number] = read_parquet_column(bytes(), group.columns[number], *node, name());
  release();
  return assemble_rows(metadata_.root, std::move(columns), static_cast<std::size_t>(group.rows), name());
}

}  // namespace lorikeet::data::columnar
