#include "io/disk.h"

#include <unistd.h>

#include "base/file.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::io;
using Catch::Contains;
using test::error_text;
namespace fs = std::filesystem;

TEST_CASE("too little free space is an error with both numbers, for folders not made yet too") {
  const test::TemporaryFolder folder;
  CHECK(free_space_bytes(folder.path()) > 0);
  CHECK_NOTHROW(require_free_space(folder / "not/made/yet", 1));
  CHECK_THAT(error_text([&] { require_free_space(folder / "not/made/yet", std::uint64_t{1} << 60); },
                        ErrorKind::kEnvironment),
             Contains("at least 1048576.0 TiB free") && Contains("got "));
}

TEST_CASE("an output folder that can't be written is refused with the reason") {
  const test::TemporaryFolder folder;
  make_writable_folder(folder / "runs/a");
  CHECK(fs::is_directory(folder / "runs/a"));
  CHECK(fs::is_empty(folder / "runs/a"));
  write_file_atomic(folder / "file", "x");
  CHECK_THAT(error_text([&] { make_writable_folder(folder / "file"); }), Contains("can't write into"));
  CHECK_THAT(error_text([&] { make_writable_folder(folder / "file/a"); }), Contains("can't write into"));
  CHECK_THAT(error_text([&] { make_writable_folder("/proc/nothing"); }), Contains("can't write into"));
  if (geteuid() == 0) return;  // to root every folder is writable
  fs::permissions(folder / "runs", fs::perms::owner_read | fs::perms::owner_exec);
  CHECK_THAT(error_text([&] { make_writable_folder(folder / "runs"); }, ErrorKind::kEnvironment),
             Contains("Permission denied"));
  fs::permissions(folder / "runs", fs::perms::owner_all);
}
