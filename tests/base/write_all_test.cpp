#include "base/write_all.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/file.h"
#include "support/catch.h"
#include "support/largest_file.h"
#include "support/paths.h"

using namespace lorikeet;

TEST_CASE("a short write is followed by the rest") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_NONBLOCK) == 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  CHECK(write_all(writer.get(), "hello") == 0);
  std::string got(5, '\0');
  CHECK(::read(reader.get(), got.data(), got.size()) == 5);
  CHECK(got == "hello");
}

TEST_CASE("what stops a write in the middle is reported, not what went wrong before") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_NONBLOCK) == 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  errno = EPERM;
  CHECK(write_all(writer.get(), std::string(1 << 20, 'x')) == EAGAIN);
}

TEST_CASE("a file that hits a limit half-way fails with that reason and leaves nothing") {
  const test::TemporaryFolder folder;
  const test::LargestFile limit(4096);
  errno = EPERM;
  CHECK_THROWS_WITH(write_file_atomic(folder / "a", std::string(10000, 'x')),
                    Catch::Contains("can't write") && Catch::Contains("File too large"));
  CHECK(std::filesystem::is_empty(folder.path()));
}
