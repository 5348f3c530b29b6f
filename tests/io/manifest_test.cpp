#include "io/manifest.h"

#include "base/file.h"
#include "io/folders.h"
#include "support.h"
#include "support/captured_stderr.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::io;
using Catch::Contains;
using test::error_text;
namespace fs = std::filesystem;

TEST_CASE("a manifest finds a flipped bit, a cut, another and a missing file, and names it") {
  const test::TemporaryFolder folder;
  const std::string bytes(100, 'x');
  const auto write = [&](const std::string& content) { write_file_atomic(folder / "tensors", content); };
  const auto error = [&] { return error_text([&] { check_manifest(folder.path()); }); };
  {
    const test::CapturedStderr warnings;
    check_manifest(folder.path());
    CHECK_THAT(warnings.text(), Contains("has no manifest.json, so damage can't be found"));
  }
  write(bytes);
  write_file_atomic(folder / kMarkerFile, "{}");
  write_manifest(folder.path());
  CHECK_NOTHROW(check_manifest(folder.path()));

  std::string flipped = bytes;
  flipped[50] = static_cast<char>(flipped[50] ^ 1);
  write(flipped);
  CHECK_THAT(error(), Contains("tensors' has another SHA-256"));
  write(bytes.substr(0, 99));
  CHECK_THAT(error(), Contains("tensors' has 99 bytes, its manifest says 100"));
  fs::remove(folder / "tensors");
  CHECK_THAT(error(), Contains("tensors' is missing"));
  write(bytes);
  write_file_atomic(folder / "beside", "x");  // what it doesn't list doesn't matter
  CHECK_NOTHROW(check_manifest(folder.path()));
}

TEST_CASE("a damaged manifest is an error, not an absent one") {
  const test::TemporaryFolder folder;
  for (const char* text : {"", "{\"format\": 1", "{\"format\": 2, \"files\": {}}", "{\"format\": 1}",
                           "{\"format\": 1, \"files\": {\"a\": {\"bytes\": 1}}}"}) {
    write_file_atomic(folder / "a", "x");
    write_file_atomic(folder / kManifestFile, text);
    INFO(text);
    CHECK_THAT(error_text([&] { check_manifest(folder.path()); }), Contains(kManifestFile));
  }
}
