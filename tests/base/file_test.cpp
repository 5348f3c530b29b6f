#include "base/file.h"

#include <sys/stat.h>

#include "base/error.h"
#include "base/hash.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;

TEST_CASE("a file written atomically reads back, by read and by map") {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / "a", "hello");
  write_file_atomic(folder / "a", "hello again", 0600);
  CHECK(read_file(folder / "a") == "hello again");
  CHECK(MappedFile(folder / "a").bytes() == "hello again");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("dropped pages read back the same bytes") {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / "a", std::string(100000, 'x'));
  const MappedFile map(folder / "a");
  map.drop_pages(0, 100000);
  CHECK(map.bytes() == std::string(100000, 'x'));
}

TEST_CASE("what is no regular file, absent or too large is an error that names it") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_WITH(read_file(folder / "absent"),
                    Catch::Contains("absent") && Catch::Contains("No such file"));
  CHECK_THROWS_WITH(read_file(folder.path()), Catch::Contains("regular file"));
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(MappedFile(folder / "fifo"), Catch::Contains("regular file"));
  write_file_atomic(folder / "big", "12345");
  CHECK_THROWS_WITH(read_file(folder / "big", 4), Catch::Contains("5 bytes"));
}

TEST_CASE("sha256 gives the standard's known answers") {
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Sha256().field("ab").field("c").hex() != Sha256().field("a").field("bc").hex());
}
