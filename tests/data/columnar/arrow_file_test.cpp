#include "data/columnar/arrow_file.h"

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

std::string stored(const std::string& name) {
  return read_file(std::filesystem::path(LORIKEET_ARROW_FILES) / name);
}

// All rows of a file, one JSON a line.
std::string read(const std::string& bytes) {
  const data::columnar::ArrowFile file(data::FileBytes(bytes, "rows.arrow"),
                                       std::make_shared<data::columnar::ChunkCache>());
  std::string rows;
  for (std::size_t i = 0; i < file.size(); ++i) rows += file.parse(i).dump() + "\n";
  return rows;
}

// `whole` with all places where `old` lies as 8 little-endian bytes holding `value` instead, which are
// counted.
std::string with_number(std::string whole, std::int64_t old, std::int64_t value, int& changed) {
  for (std::size_t i = 0; i + 8 <= whole.size(); i += 8) {
    std::int64_t found = 0;
    std::memcpy(&found, whole.data() + i, 8);
    if (found != old) continue;
    std::memcpy(whole.data() + i, &value, 8);
    ++changed;
  }
  return whole;
}

}  // namespace

TEST_CASE("rows of Arrow files are those of the stream, however they are compressed") {
  const std::string rows = read(stored("stream_nested"));
  CHECK_THAT(rows, Contains("\"role\":\"user\"") && Contains("null"));
  for (const char* name : {"file_stored", "file_lz4", "file_zstd"}) CHECK(read(stored(name)) == rows);
}

TEST_CASE("values come from dictionaries, and texts from views") {
  CHECK(read(stored("stream_coded")) ==
        "{\"word\":\"a\",\"view\":\"x\"}\n{\"word\":null,\"view\":\"y\"}\n"
        "{\"word\":\"b\",\"view\":\"a longer text\"}\n");
}

TEST_CASE("rows of an Arrow file are placed by their number") {
  const data::columnar::ArrowFile file(data::FileBytes(stored("stream_flat"), "rows.arrow"),
                                       std::make_shared<data::columnar::ChunkCache>());
  REQUIRE(file.size() > 2);
  CHECK(file.where(2) == "[data] row 3 of rows.arrow");
  CHECK(file.line(2) == 0);
}

TEST_CASE("an Arrow file that is cut anywhere is an error, and a stream too but for between its parts") {
  const std::string file = stored("file_stored");
  for (std::size_t length = 6; length < file.size(); ++length)
    CHECK_THROWS_WITH(read(file.substr(0, length)), Contains("'rows.arrow'"));
  const std::string stream = stored("stream_nested");
  const std::string whole = read(stream);
  std::size_t parts = 0;
  for (std::size_t length = 4; length < stream.size(); ++length) {
    try {
      const std::string rows = read(stream.substr(0, length));
      CHECK(whole.starts_with(rows));
      parts += rows.size() < whole.size() ? 1 : 0;
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Contains("'rows.arrow'"));
    }
  }
  CHECK(parts < 3);
}

TEST_CASE("lengths and places that lie are errors before memory is taken") {
  const std::string stream = stored("stream_flat");
  int changed = 0;
  // The parts have two rows, their columns as many values.
  CHECK_THROWS_WITH(read(with_number(stream, 2, std::int64_t{1} << 40, changed)),
                    Contains("more values than its"));
  CHECK_THROWS_WITH(read(with_number(stream, 2, 3000, changed)), Contains("for values that take"));
  CHECK_THROWS_WITH(read(with_number(stream, 2, -1, changed)), Contains("negative"));
  CHECK(changed > 6);
  CHECK_THROWS_WITH(read(with_number(stream, 16, std::int64_t{1} << 50, changed)),
                    Contains("outside of its bytes"));
}
