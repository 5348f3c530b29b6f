#include "data/source_files.h"

#include <filesystem>

#include "base/error.h"
#include "data/open_records.h"
#include "data_fixture.h"
#include "support/captured_stderr.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

struct Folder {
  test::TemporaryFolder root;

  void add(const std::string& name, const std::string& bytes = "{\"text\": \"a\"}\n") const {
    std::filesystem::create_directories((root / name).parent_path());
    write_file_atomic(root / name, bytes);
  }
  std::string find(const std::string& pattern = "", const std::string& split = "") const {
    std::string names;
    for (const auto& file : data::find_source_files(pattern.empty() ? root.path() : root / pattern, split))
      names += (names.empty() ? "" : " ") + file.lexically_relative(root.path()).string();
    return names;
  }
};

}  // namespace

TEST_CASE("a folder as the Hub lays it out gives the files of a split, train by default") {
  const Folder folder;
  for (const char* name :
       {"README.md", "dataset_infos.json", ".cache/train.jsonl", "data/train-00001-of-00002.jsonl",
        "data/train-00000-of-00002.jsonl", "data/dev-00000-of-00001.jsonl", "data/test.jsonl.gz"})
    folder.add(name);
  CHECK(folder.find() == "data/train-00000-of-00002.jsonl data/train-00001-of-00002.jsonl");
  CHECK(folder.find("", "validation") == "data/dev-00000-of-00001.jsonl");
  CHECK(folder.find("", "test") == "data/test.jsonl.gz");
  CHECK_THROWS_WITH(folder.find("", "extra"), Contains("'extra'") && Contains("test, train, validation"));
}

TEST_CASE("a folder without splits gives all its files, one without train asks for a split") {
  const Folder folder;
  folder.add("b.jsonl");
  folder.add("a/c.jsonl");
  folder.add("training_notes.txt");
  CHECK(folder.find() == "a/c.jsonl b.jsonl");
  CHECK_THROWS_WITH(folder.find("", "train"), Contains("none with a split in their names"));
  const Folder other;
  other.add("test/part.jsonl");
  CHECK_THROWS_WITH(other.find(), Contains("'train'") && Contains("data.train.split"));
  CHECK(other.find("", "test") == "test/part.jsonl");
}

TEST_CASE("files that a split leaves out are reported where their names tell no split") {
  const Folder folder;
  for (const char* name : {"train_extra.jsonl", "test.jsonl"}) folder.add(name);
  const auto said = [&] {
    const test::CapturedStderr log;
    CHECK(folder.find() == "train_extra.jsonl");
    return log.text();
  };
  CHECK(said().empty());
  folder.add("more.jsonl");
  CHECK_THAT(said(), Contains("left out are 1 whose names tell no split: more.jsonl"));
}

TEST_CASE("the parts of a split are named after it, which need not be a usual name") {
  const Folder folder;
  for (const char* name :
       {"data/train_sft-00000-of-00002-ab12.parquet", "data/train_sft-00001-of-00002-cd34.parquet",
        "data/train_gen-00000-of-00001.parquet", "data/test_sft-00000-of-00001.parquet"})
    folder.add(name);
  const std::string both =
      "data/train_sft-00000-of-00002-ab12.parquet data/train_sft-00001-of-00002-cd34.parquet";
  CHECK(folder.find("", "train_sft") == both);
  CHECK_THROWS_WITH(folder.find(), Contains("'train'") && Contains("test_sft, train_gen, train_sft"));
  std::filesystem::remove(folder.root / "data/train_gen-00000-of-00001.parquet");
  CHECK(folder.find() == both);
  CHECK_THROWS_WITH(folder.find("", "train"), Contains("test_sft, train_sft"));
  const Folder saved;  // by datasets' save_to_disk
  saved.add("train/data-00000-of-00001.arrow");
  saved.add("test/data-00000-of-00001.arrow");
  CHECK(saved.find() == "train/data-00000-of-00001.arrow");
}

TEST_CASE("files of several folders are read together, with a warning") {
  const Folder folder;
  for (const char* name : {"main/train.jsonl", "main/test.jsonl", "socratic/train.jsonl"}) folder.add(name);
  const test::CapturedStderr log;
  CHECK(folder.find() == "main/train.jsonl socratic/train.jsonl");
  CHECK_THAT(log.text(), Contains("2 folders are read together: main (1), socratic (1)"));
}

TEST_CASE("a folder that links lead to again is read once") {
  const Folder folder;
  folder.add("v1/a.jsonl");
  std::filesystem::create_directory_symlink(folder.root / "v1", folder.root / "latest");
  std::filesystem::create_directory_symlink(folder.root.path(), folder.root / "v1/up");
  CHECK(folder.find() == "latest/a.jsonl");
  CHECK(folder.find("**/a.jsonl") == "latest/a.jsonl");
  CHECK(folder.find("v*/a.jsonl") == "v1/a.jsonl");  // whatever else leads there
  folder.add("2024/b.jsonl");
  std::filesystem::create_directory_symlink(folder.root / "2024", folder.root / "train");
  const test::CapturedStderr log;
  CHECK(folder.find() == "train/b.jsonl");
  CHECK_THAT(log.text(), Contains("left out are 1 whose names tell no split: latest/a.jsonl"));
}

TEST_CASE("a link that leads nowhere is an error where its rows are asked for") {
  const Folder folder;
  folder.add("train-1.jsonl");
  for (const char* name : {"train-2.jsonl", "test.jsonl", "notes.txt"})
    std::filesystem::create_symlink(folder.root / "blobs/gone", folder.root / name);
  CHECK_THROWS_WITH(folder.find(), Contains("train-2.jsonl': a link that leads to no file"));
  CHECK_THROWS_WITH(folder.find("train-*.jsonl"), Contains("train-2.jsonl"));
  std::filesystem::remove(folder.root / "train-2.jsonl");
  CHECK(folder.find() == "train-1.jsonl");
  CHECK(folder.find("train-*.jsonl") == "train-1.jsonl");
  CHECK_THROWS_WITH(folder.find("n*"), Contains("no file matches"));  // notes.txt is no data file
}

TEST_CASE("a pattern gives the files that match, in the order of their names") {
  const Folder folder;
  for (const char* name : {"a-2.jsonl", "a-1.jsonl", "b.csv", "x/y/a-3.jsonl", "x/.a-4.jsonl"})
    folder.add(name);
  CHECK(folder.find("*.jsonl") == "a-1.jsonl a-2.jsonl");
  CHECK(folder.find("a-[1].jsonl") == "a-1.jsonl");
  CHECK(folder.find("**/*.jsonl") == "a-1.jsonl a-2.jsonl x/y/a-3.jsonl");
  CHECK(folder.find("x/*/a-?.jsonl") == "x/y/a-3.jsonl");
  CHECK_THROWS_WITH(folder.find("*.parquet"), Contains("*.parquet") && Contains("no file matches"));
  CHECK_THROWS_WITH(folder.find("b.csv", "test"), Contains("'test'") && Contains("this is none") &&
                                                      Contains("of validation rows data.validation.split"));
  CHECK(data::source_exists(folder.root / "*.csv"));
  CHECK_FALSE(data::source_exists(folder.root / "*.tsv"));
}

TEST_CASE("a file beside its packed form is an error, since its rows would be read twice") {
  const Folder folder;
  for (const char* name : {"train.jsonl", "train.jsonl.gz", "test.jsonl.zst", "more/train.csv.GZ"})
    folder.add(name);
  CHECK_THROWS_WITH(folder.find(), Contains("train.jsonl.gz'") && Contains("'train.jsonl' stands beside it"));
  CHECK_THROWS_WITH(folder.find("train.*"), Contains("would be read twice"));
  CHECK(folder.find("", "test") == "test.jsonl.zst");
  CHECK(folder.find("train.jsonl*[z]") == "train.jsonl.gz");
}

TEST_CASE("a folder without data files is an error") {
  const Folder folder;
  folder.add("README.md");
  CHECK_THROWS_WITH(folder.find(), Contains("holds no file of rows"));
}

TEST_CASE("rows of several files are one source, whose errors name their own file and line") {
  const Folder folder;
  folder.add("a.jsonl", "{\"text\": \"1\"}\n\n{\"text\": \"2\"}\n");
  folder.add("b.jsonl.gz", test::gzip("{\"text\": \"3\"}\n{\"text\": 4\n"));
  const auto rows = data::open_record_files(data::find_source_files(folder.root.path(), ""), "folder");
  REQUIRE(rows->size() == 4);
  CHECK(rows->name() == "folder");
  CHECK(rows->parse(1).dump() == R"({"text":"2"})");
  CHECK(rows->where(1) == "[data] line 3 of a.jsonl");
  CHECK(rows->line(1) == 0);
  CHECK(rows->parse(2).dump() == R"({"text":"3"})");
  CHECK_THROWS_WITH(rows->parse(3), Contains("line 2 of b.jsonl.gz"));
}

TEST_CASE("a limit takes the first rows, and all where there are fewer") {
  const Folder folder;
  folder.add("a.csv", "text\na\nb\nc\n");
  const auto open = [&] { return data::open_record_file(data::FileBytes(folder.root / "a.csv")); };
  const auto two = data::first_records(open(), 2);
  REQUIRE(two->size() == 2);
  CHECK(two->where(1) == "[data] line 3 of a.csv");
  CHECK(data::first_records(open(), 7)->size() == 3);
}

TEST_CASE("files of different kinds in one folder are an error that names two of them") {
  const Folder folder;
  folder.add("a.jsonl");
  folder.add("b.csv", "text\na\n");
  CHECK_THROWS_WITH(data::open_record_files(data::find_source_files(folder.root.path(), ""), "folder"),
                    Contains("'a.jsonl' (JSON)") && Contains("'b.csv' (CSV)"));
}
