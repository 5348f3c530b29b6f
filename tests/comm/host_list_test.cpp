#include "comm/host_list.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using Catch::Contains;
using comm::parse_host_list;
using test::error_text;
using Hosts = std::vector<std::string>;

TEST_CASE("a node list's ranges are written out") {
  CHECK(parse_host_list("login1") == Hosts{"login1"});
  CHECK(parse_host_list("a,b-1") == Hosts{"a", "b-1"});
  CHECK(parse_host_list("gpu[01-03,07],login1") == Hosts{"gpu01", "gpu02", "gpu03", "gpu07", "login1"});
  CHECK(parse_host_list("n[9-11]") == Hosts{"n9", "n10", "n11"});
  CHECK(parse_host_list("r[1-2]n[1-2].local") ==
        Hosts{"r1n1.local", "r1n2.local", "r2n1.local", "r2n2.local"});
}

TEST_CASE("a malformed node list is an error that shows it") {
  for (const char* bad : {"", ",", "a,,b", "a[1", "a]", "a[1-]", "a[x]", "a[3-1]", "a[[1]]", "a[]",
                          "a[1-9999999]", "a[1-999][1-999]", "a[12345678901]"}) {
    INFO(bad);
    CHECK_THAT(error_text([&] { parse_host_list(bad); }),
               Contains("[launch] node list '" + std::string(bad)));
  }
}
