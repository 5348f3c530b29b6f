#include "data/file_kind.h"

#include "base/error.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

void open(const std::string& name, const std::string& bytes) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / name, bytes);
  data::RecordFile(folder / name);
}

}  // namespace

TEST_CASE("files of other kinds are named, with the way to convert them") {
  using namespace std::string_literals;
  const std::string csv = "prompt,completion\nHello,\"Hi, you\"\n";
  CHECK_THROWS_WITH(open("rows.parquet", "PAR1\x15\x04"),
                    Contains("a Parquet file") && Contains("read_parquet"));
  CHECK_THROWS_WITH(open("rows", "ARROW1\0\0"s), Contains("an Arrow file") && Contains("datasets.Dataset"));
  CHECK_THROWS_WITH(open("rows.arrow", "\xFF\xFF\xFF\xFF\x10\0"s), Contains("an Arrow file"));
  CHECK_THROWS_WITH(open("rows.xlsx", "PK\x03\x04..."), Contains("a spreadsheet"));
  CHECK_THROWS_WITH(open("rows.jsonl", "version https://git-lfs.github.com/spec/v1\n"),
                    Contains("git lfs pull"));
  CHECK_THROWS_WITH(open("rows.csv", csv),
                    Contains("'rows.csv' is a CSV file") && Contains("read_csv(\"rows.csv\")"));
  CHECK_THROWS_WITH(open("rows.csv", "\"text\"\n\"Hello\"\n"), Contains("a CSV file"));
  CHECK_THROWS_WITH(open("rows", csv), Contains("a CSV file"));
  CHECK_THROWS_WITH(open("rows.gz", test::gzip(csv)), Contains("a CSV file"));
  CHECK_THROWS_WITH(open("rows.tsv", "prompt\tcompletion\na\tb\n"),
                    Contains("a TSV file") && Contains("sep=\"\\t\""));
  CHECK_THROWS_WITH(open("rows", "prompt\tcompletion\na\tb\n"), Contains("a TSV file"));
  for (const char* name : {"rows.txt", "rows"})
    CHECK_THROWS_WITH(open(name, "Once, long ago,\nthere was a bird.\n"),
                      Contains("plain text") && Contains("{\"text\": \"...\"}"));
}

TEST_CASE("JSON is read whatever the file's name says") {
  for (const char* name : {"rows.csv", "rows.txt", "rows.parquet", "rows"}) {
    CHECK_NOTHROW(open(name, "{\"text\": \"a, b\"}\n"));
    CHECK_NOTHROW(open(name, " \n[{\"text\": \"a\"}]\n"));
  }
}
