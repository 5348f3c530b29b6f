#pragma once

#include <map>
#include <string>

#include "data/columnar/parquet_column.h"

namespace lorikeet::data::columnar {

/// Puts the columns of a row group together into rows: a struct of `rows` values whose children are the
/// schema's fields, lists (LIST, MAP and repeated fields) and structs as they are nested. `columns` holds the
/// columns that are read, by their place in the schema; fields without any such column are left out. Throws
/// Error when levels don't fit the schema, or columns disagree about rows or about where lists begin.
Array assemble_rows(const SchemaNode& root, std::map<std::size_t, LeafColumn> columns, std::size_t rows,
                    const std::string& name);

}  // namespace lorikeet::data::columnar
