#include "hub/file_list.h"

#include "base/file.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

const std::string kSha1 =
    "ce013625030ba8dba906f756967f9e9ca394464a";  // `printf 'hello\n' | git hash-object --stdin`
const std::string kSha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

std::string list_with(const std::string& siblings) {
  return R"({"sha":")" + std::string(40, 'a') + R"(","siblings":[)" + siblings + "]}";
}

}  // namespace

TEST_CASE("the Hub's list gives path, size and checksum of each file") {
  const auto list = hub::parse_file_list(
      list_with(R"({"rfilename":"config.json","size":6,"blobId":")" + kSha1 +
                R"("},{"rfilename":"a/w.safetensors","size":6,"blobId":"x","lfs":{"sha256":")" + kSha256 +
                R"("}})"),
      "list");
  CHECK(list.commit == std::string(40, 'a'));
  REQUIRE(list.files.size() == 2);
  CHECK(list.files[0].path == "config.json");
  CHECK(list.files[0].size == 6);
  CHECK(list.files[0].digest == hub::Digest{hub::Digest::Kind::kGitSha1, kSha1});
  CHECK(list.files[1].digest == hub::Digest{hub::Digest::Kind::kSha256, kSha256});
}

TEST_CASE("a file's digests are git's and sha256sum's") {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / "x", "hello\n");
  CHECK(hub::file_digest(folder / "x", hub::Digest::Kind::kGitSha1).hex == kSha1);
  CHECK(hub::file_digest(folder / "x", hub::Digest::Kind::kSha256).hex == kSha256);
  write_file_atomic(folder / "empty", "");
  CHECK(hub::file_digest(folder / "empty", hub::Digest::Kind::kGitSha1).hex ==
        "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

TEST_CASE("what is no list is an error that says where") {
  const auto text = [](const std::string& json) {
    return test::error_text([&] { hub::parse_file_list(json, "list"); });
  };
  CHECK_THAT(text("<html>"), Contains("list"));
  CHECK_THAT(text("{}"), Contains("sha"));
  CHECK_THAT(text(R"({"sha":"abc","siblings":[]})"), Contains("a commit"));
  CHECK_THAT(text(list_with(R"({"rfilename":"a","size":1})")), Contains("blobId"));
  CHECK_THAT(text(list_with(R"({"rfilename":"a","blobId":")" + kSha1 + R"("})")), Contains("size"));
  CHECK_THAT(text(list_with(R"({"rfilename":"a","size":1,"blobId":"A)" + kSha1.substr(1) + R"("})")),
             Contains("checksum"));
}

TEST_CASE("paths inside the repository pass, all others are refused") {
  for (const char* good : {"a", "a/b.json", "..a", "a..b/c", "data/train-00000-of-00001.parquet", "\xc3\xa4"})
    CHECK_NOTHROW(hub::require_safe_path(good, "x"));
  for (const char* bad : {"", "/", "/a", "a/", "a//b", ".", "./a", "..", "../a", "a/..", "a/../b", "a\\b",
                          "a\nb", "a\tb", "\xff"})
    CHECK_THAT(test::error_text([&] { hub::require_safe_path(bad, "x"); }), Contains("nothing is written"));
  CHECK_THROWS(hub::require_safe_path(std::string("a\0b", 3), "x"));
  CHECK_THROWS(hub::require_safe_path(std::string(201, 'a'), "x"));
}
