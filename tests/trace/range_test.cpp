#include "trace/range.h"

#include <cstdlib>
#include <string>

#include "support/captured_stderr.h"
#include "support/catch.h"

#ifdef LORIKEET_NVTX_READER

using namespace lorikeet::trace;

namespace {

// Looked at once a process, before the first range.
const bool prepared = setenv("NVTX_INJECTION64_PATH", LORIKEET_NVTX_READER, 1) == 0;

}  // namespace

TEST_CASE("ranges are told to NVTX with their figures, nested as the objects are") {
  REQUIRE(prepared);
  const lorikeet::test::CapturedStderr written;
  {
    const Range step("step", {{"step", 3}});
    { const Range forward("forward", {{"tokens", 10}, {"bytes", 20}}); }
    const Range backward("backward");
  }
  CHECK(written.text() ==
        "nvtx begin step step=3\nnvtx begin forward tokens=10 bytes=20\nnvtx end\n"
        "nvtx begin backward\nnvtx end\nnvtx end\n");
}

#endif
