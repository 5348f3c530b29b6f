#include "comm/interfaces.h"

#include "comm/socket.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::comm;
using Catch::Contains;

TEST_CASE("the loopback interface and its address find each other") {
  CHECK(address_of_interface("lo") == "127.0.0.1");
  CHECK(interface_of_address("127.0.0.1") == "lo");
  CHECK(interface_of_address("192.0.2.1").empty());
  CHECK(local_address_towards("127.0.0.1", 80) == "127.0.0.1");
}

TEST_CASE("an interface that isn't there is refused, with those that are") {
  CHECK_THAT(test::error_text([] { address_of_interface("none0"); }),
             Contains("no interface 'none0'") && Contains("lo (127.0.0.1)"));
}

TEST_CASE("processes of one machine listen on loopback, those of several where the store is reached") {
  Placement placement{.world_size = 2, .host = "127.0.0.1", .port = 80};
  CHECK(address_for_peers(placement, "none0") == "127.0.0.1");
  placement.nodes = 2;
  CHECK(address_for_peers(placement, {}) == "127.0.0.1");
  CHECK_THAT(test::error_text([&] { address_for_peers(placement, "none0"); }), Contains("none0"));
}

TEST_CASE("loopback addresses are known from others") {
  CHECK(is_loopback("127.0.1.1"));
  CHECK_FALSE(is_loopback("10.0.0.1"));
}
