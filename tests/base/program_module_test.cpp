#include "base/program_module.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;

TEST_CASE("a library that isn't beside the program is named with what needs it") {
  CHECK_THAT(test::error_text([] { function_beside_program("liblorikeet_absent.so", "f", "[x] needs it"); },
                              ErrorKind::kEnvironment),
             Catch::StartsWith("[x] needs it: ") && Catch::Contains("liblorikeet_absent.so"));
}
