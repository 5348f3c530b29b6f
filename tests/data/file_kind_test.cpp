#include "data/file_kind.h"

#include "base/error.h"
#include "data/open_records.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

void open(const std::string& name, const std::string& bytes) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / name, bytes);
  data::open_record_file(data::FileBytes(folder / name));
}

data::FileKind kind_of(const std::string& bytes, const std::string& name) {
  return data::file_kind(data::FileBytes(bytes, name));
}

}  // namespace

TEST_CASE("files of other kinds are named, with the way to convert them") {
  CHECK_THROWS_WITH(open("rows.feather", "FEA1...."), Contains("first version") && Contains("read_feather"));
  CHECK_THROWS_WITH(open("rows.parquet", "PARE...."), Contains("an encrypted Parquet file"));
  CHECK_THROWS_WITH(open("rows.xlsx", "PK\x03\x04..."), Contains("a spreadsheet"));
  CHECK_THROWS_WITH(open("rows.jsonl", "version https://git-lfs.github.com/spec/v1\n"),
                    Contains("git lfs pull"));
  for (const char* name : {"rows.txt", "rows"})
    CHECK_THROWS_WITH(open(name, "Once, long ago,\nthere was a bird.\n"),
                      Contains("plain text") && Contains("{\"text\": \"...\"}"));
}

TEST_CASE("a file's kind is recognised by its content, then by its name") {
  using namespace std::string_literals;
  using data::FileKind;
  const std::string csv = "prompt,completion\nHello,\"Hi, you\"\n";
  const std::string tsv = "prompt\tcompletion\na\tb\n";
  CHECK(kind_of("PAR1\x15\x04", "rows") == FileKind::kParquet);
  CHECK(kind_of("ARROW1\0\0"s, "rows") == FileKind::kArrow);
  CHECK(kind_of("\xFF\xFF\xFF\xFF\x10\0"s, "rows.json") == FileKind::kArrow);
  CHECK(kind_of(csv, "rows.csv") == FileKind::kCsv);
  CHECK(kind_of("\"text\"\n\"Hello\"\n", "rows.csv.gz") == FileKind::kCsv);
  CHECK(kind_of(csv, "rows") == FileKind::kCsv);
  CHECK(kind_of(tsv, "rows.tsv") == FileKind::kTsv);
  CHECK(kind_of(tsv, "rows") == FileKind::kTsv);
  for (const char* name : {"rows.csv", "rows.txt", "rows.parquet", "rows"}) {
    CHECK(kind_of("{\"text\": \"a, b\"}\n", name) == FileKind::kJson);
    CHECK(kind_of("\xEF\xBB\xBF \n[{\"text\": \"a\"}]\n", name) == FileKind::kJson);
  }
}

TEST_CASE("data files are known by their ending, packed or not") {
  for (const char* name : {"a.jsonl", "a.JSONL.gz", "a.ndjson.zst", "a.json", "train-0.parquet", "a.tsv",
                           "a.arrow", "a.feather", "a.csv"})
    CHECK(data::is_data_file_name(name));
  for (const char* name : {"README.md", "a.txt", "a.gz", "parquet", "a.py"})
    CHECK_FALSE(data::is_data_file_name(name));
}
