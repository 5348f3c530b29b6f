#include "hub/cache.h"

#include "base/file.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
namespace fs = std::filesystem;

namespace {

const std::string kCommit(40, 'a');
const hub::Repository kModel{.kind = hub::RepositoryKind::kModel, .name = "o/m"};
const hub::RemoteFile kFile{
    .path = "sub/x.json", .size = 2, .digest = {hub::Digest::Kind::kGitSha1, std::string(40, 'b')}};

}  // namespace

TEST_CASE("a snapshot's file is a relative link to its blob, also where something else stood") {
  const test::TemporaryFolder folder;
  const hub::RepositoryCache cache(folder.path(), kModel);
  fs::create_directories(cache.blob(kFile.digest).parent_path());
  write_file_atomic(cache.blob(kFile.digest), "{}");
  const fs::path link = cache.snapshot(kCommit) / "sub" / "x.json";
  CHECK(link == folder.path() / "models--o--m" / "snapshots" / kCommit / "sub" / "x.json");
  fs::create_directories(link.parent_path());
  write_file_atomic(link, "old");
  cache.link(kCommit, kFile);
  CHECK(fs::read_symlink(link) == "../../../blobs/" + kFile.digest.hex);
  CHECK(read_file(link) == "{}");
  cache.link(kCommit, kFile);  // again: nothing happens
  CHECK(read_file(link) == "{}");
}

TEST_CASE("a blob counts with its size alone") {
  const test::TemporaryFolder folder;
  const hub::RepositoryCache cache(folder.path(), kModel);
  CHECK_FALSE(cache.has_blob(kFile));
  fs::create_directories(cache.blob(kFile.digest).parent_path());
  write_file_atomic(cache.blob(kFile.digest), "{");
  CHECK_FALSE(cache.has_blob(kFile));
  write_file_atomic(cache.blob(kFile.digest), "{}");
  CHECK(cache.has_blob(kFile));
}

TEST_CASE("a branch is known by its reference, a commit by itself") {
  const test::TemporaryFolder folder;
  const hub::RepositoryCache cache(folder.path(), kModel);
  CHECK_FALSE(cache.known_commit("main"));
  CHECK(cache.known_commit(kCommit) == kCommit);
  cache.write_reference("refs/pr/1", kCommit);
  CHECK(cache.known_commit("refs/pr/1") == kCommit);
  CHECK(read_file(folder / "models--o--m" / "refs" / "refs" / "pr" / "1") == kCommit);
  write_file_atomic(folder / "models--o--m" / "refs" / "main", "../../evil");
  CHECK_FALSE(cache.known_commit("main"));
}

TEST_CASE("a finished download is known by what was asked for, until a file of it goes") {
  const test::TemporaryFolder folder;
  const hub::RepositoryCache cache(folder.path(), kModel);
  fs::create_directories(cache.blob(kFile.digest).parent_path());
  write_file_atomic(cache.blob(kFile.digest), "{}");
  cache.link(kCommit, kFile);
  CHECK_FALSE(cache.is_finished(kCommit, {}));
  cache.record_finished(kCommit, {"*.json"}, {kFile});
  CHECK(cache.is_finished(kCommit, {"*.json"}));
  CHECK_FALSE(cache.is_finished(kCommit, {}));
  fs::remove(cache.blob(kFile.digest));
  CHECK_FALSE(cache.is_finished(kCommit, {"*.json"}));
}
