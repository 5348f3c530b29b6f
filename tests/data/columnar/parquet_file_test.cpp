#include "data/columnar/parquet_file.h"

#include "base/error.h"
#include "parquet_builder.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;
using test::ParquetBuilder;

namespace {

// All rows of a file, one JSON a line.
std::string read_bytes(const std::string& bytes) {
  const data::columnar::ParquetFile file(data::FileBytes(bytes, "rows.parquet"),
                                         std::make_shared<data::columnar::ChunkCache>());
  std::string rows;
  for (std::size_t i = 0; i < file.size(); ++i) rows += file.parse(i).dump() + "\n";
  return rows;
}

std::string read(const ParquetBuilder& file) { return read_bytes(file.bytes()); }

}  // namespace

TEST_CASE("rows of a Parquet file are objects of its columns, placed by their number") {
  CHECK(read(ParquetBuilder{}) == "{\"text\":\"a\"}\n{\"text\":\"bc\"}\n{\"text\":\"d\"}\n");
  const data::columnar::ParquetFile file(data::FileBytes(ParquetBuilder{}.bytes(), "rows.parquet"),
                                         std::make_shared<data::columnar::ChunkCache>());
  CHECK(file.where(1) == "[data] row 2 of rows.parquet");
  CHECK(file.line(1) == 0);
}

TEST_CASE("a Parquet file that is cut anywhere, or whose footer's length lies, is an error") {
  const std::string whole = ParquetBuilder{}.bytes();
  for (std::size_t length = 4; length < whole.size(); ++length)
    CHECK_THROWS_WITH(read_bytes(whole.substr(0, length)), Contains("'rows.parquet'") && Contains("footer"));
  std::string lying = whole;
  lying.replace(lying.size() - 8, 4, ParquetBuilder::number(whole.size()));
  CHECK_THROWS_WITH(read_bytes(lying), Contains("which the file is not"));
  lying.replace(lying.size() - 8, 4, ParquetBuilder::number(3));
  CHECK_THROWS_WITH(read_bytes(lying), Contains("footer"));
}

TEST_CASE("row counts that lie are errors with both numbers") {
  CHECK_THROWS_WITH(read({.rows = 4}), Contains("says 4 rows") && Contains("have 3"));
  CHECK_THROWS_WITH(read({.rows = 4, .group_rows = 4}), Contains("says 4 rows") && Contains("hold 3"));
  CHECK_THROWS_WITH(read({.rows = 2, .group_rows = 2}), Contains("says 2 rows") && Contains("hold 3"));
  CHECK_THROWS_WITH(read({.column_values = 2}), Contains("column 'text'") && Contains("more values"));
  CHECK_THROWS_WITH(read({.column_values = 4}), Contains("column 'text'") && Contains("page header"));
  CHECK_THROWS_WITH(read({.page_values = 4}), Contains("column 'text'"));
  CHECK_THROWS_WITH(read({.column_values = 4, .page_values = 4}), Contains("ends before its values do"));
  CHECK_THROWS_WITH(read({.rows = -7, .group_rows = -7}), Contains("without a number of rows"));
  CHECK_THROWS_WITH(read({.values = {}}), Contains("holds no row"));
  CHECK_THROWS_WITH(read({.values = {}, .offset = 0}), Contains("holds no row"));  // as pyarrow writes it
}

TEST_CASE("sizes and offsets that lie are errors before memory is taken") {
  CHECK_THROWS_WITH(read({.rows = 1LL << 40, .group_rows = 1LL << 40, .column_values = 1LL << 40}),
                    Contains("claims") && Contains("can hold"));
  CHECK_THROWS_WITH(read({.offset = 1 << 20}), Contains("outside of the file"));
  CHECK_THROWS_WITH(read({.offset = -5}), Contains("outside of the file"));
  CHECK_THROWS_WITH(read({.page_bytes = 1 << 20}), Contains("beyond the column's end"));
  CHECK_THROWS_WITH(read({.page_bytes = -9}), Contains("beyond the column's end"));
  CHECK_THROWS_WITH(read({.unpacked_bytes = 1 << 30, .codec = 1}), Contains("expands more than 200 times"));
  CHECK_THROWS_WITH(read({.unpacked_bytes = 900, .codec = 6}), Contains("900 bytes that their header says"));
}

TEST_CASE("what isn't read is named: compressions and encodings") {
  CHECK_THROWS_WITH(read({.codec = 4}), Contains("brotli") && Contains("write the file again"));
  CHECK_THROWS_WITH(read({.encoding = 9}), Contains("column 'text'") && Contains("encoding 9"));
  CHECK_THROWS_WITH(read({.encoding = 8}), Contains("a dictionary that isn't there"));
}

TEST_CASE("schemas that are no tree of known columns are errors") {
  CHECK_THROWS_WITH(read({.schema_children = 2}), Contains("schema is no tree"));
  CHECK_THROWS_WITH(read({.schema_children = 0}), Contains("has no columns"));
  CHECK_THROWS_WITH(read({.type = 12}), Contains("outside of the file"));
  CHECK_THROWS_WITH(read({.repetition = 5}), Contains("unknown repetition"));
}

TEST_CASE("text that isn't UTF-8 is an error with its row and column") {
  CHECK_THROWS_WITH(read({.values = {"a", "caf\xE9"}}),
                    Contains("row 2 of rows.parquet: column 'text'") && Contains("not UTF-8"));
}

TEST_CASE("a column of a type that rows can't hold is left out") {
  ParquetBuilder file;
  file.type = 3;  // 96-bit integers
  CHECK(read(file) == "{}\n{}\n{}\n");
}
