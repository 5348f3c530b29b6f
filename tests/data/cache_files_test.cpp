#include "data/cache_files.h"

#include <chrono>

#include "base/file.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::data;
namespace fs = std::filesystem;

namespace {

struct Leftovers {
  test::TemporaryFolder folder;

  // A file so many hours old.
  fs::path make(const std::string& name, int hours) const {
    const fs::path path = folder / name;
    write_file_atomic(path, "x");
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
    return path;
  }
};

const std::string kKey(64, 'a');

}  // namespace

TEST_CASE("what killed writers left in the cache is removed, and nothing else") {
  const Leftovers left;
  const std::string other(64, 'b'), third(64, 'c'), no_key = "X" + kKey.substr(1),
                                                    random = "0123456789abcdef";
  const auto temporary = [](const std::string& key, const std::string& ending) {
    return key + ".tokens.tmp-" + ending;
  };
  const fs::path killed = left.make(temporary(kKey, random), 2);
  const fs::path older = left.make(temporary(other, "4711"), 2);  // by a version that used process ids
  std::vector<fs::path> kept;
  kept.push_back(left.make(temporary(third, random), 0));  // its writer may live
  kept.push_back(left.make(kKey + ".tokens", 100));
  kept.push_back(left.make(kKey + ".other.tmp-" + random, 100));
  for (const std::string& name : {std::string("notes"), no_key, kKey.substr(1)})
    kept.push_back(left.make(temporary(name, random), 100));
  for (const char* ending : {"", "1x", "0123456789ABCDEF"})
    kept.push_back(left.make(temporary(kKey, ending), 100));
  CHECK(remove_stale_temporaries(left.folder.path()) == 2);
  CHECK_FALSE(fs::exists(killed));
  CHECK_FALSE(fs::exists(older));
  for (const fs::path& path : kept) CHECK(fs::exists(path));
}

TEST_CASE("links and folders of a leftover's name stay, and so does what they lead to") {
  const Leftovers left;
  const fs::path target = left.make("target", 100);
  fs::create_symlink(target, left.folder / (kKey + ".tokens.tmp-4711"));
  const std::string other(64, 'b');
  fs::create_directory(left.folder / (other + ".tokens.tmp-4711"));
  CHECK(remove_stale_temporaries(left.folder.path()) == 0);
  CHECK(std::distance(fs::directory_iterator(left.folder.path()), {}) == 3);
  CHECK(remove_stale_temporaries(left.folder / "absent") == 0);
}

TEST_CASE("a cache folder is made for its owner alone, and a file or an open folder is refused in words") {
  const test::TemporaryFolder folder;
  CHECK(prepare_cache_folder(folder / "a/b") == "");
  CHECK(fs::status(folder / "a/b").permissions() == fs::perms::owner_all);
  write_file_atomic(folder / "file", "");
  CHECK_THAT(prepare_cache_folder(folder / "file"), Catch::Contains("no folder"));
  CHECK_THAT(prepare_cache_folder(folder / "file/a"), Catch::Contains("can't be made"));
  fs::permissions(folder / "a/b", fs::perms::all);
  CHECK_THAT(prepare_cache_folder(folder / "a/b"), Catch::Contains("sticky"));
  fs::permissions(folder / "a/b", fs::perms::all | fs::perms::sticky_bit);
  CHECK(prepare_cache_folder(folder / "a/b") == "");
}
