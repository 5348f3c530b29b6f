#include "hub/server_error.h"

#include <ctime>

#include "support/catch.h"

using namespace lorikeet;

namespace {

std::optional<double> wait_for(const std::string& name, const std::string& value) {
  return hub::seconds_to_wait({.status = 429, .headers = {{name, value}}});
}

}  // namespace

TEST_CASE("the wait is what the server asks for, in each of its ways of saying so") {
  CHECK(wait_for("retry-after", "7") == 7.0);
  CHECK(wait_for("retry-after", "0") == 0.0);
  CHECK(wait_for("retry-after", "-5") == 0.0);
  CHECK(wait_for("retry-after", "nan") == 0.0);
  CHECK(wait_for("retry-after", "1e300") == 1e6);
  CHECK(wait_for("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT") == 0.0);
  CHECK(wait_for("ratelimit", "\"api\";r=0;t=55") == 55.0);
  CHECK_FALSE(wait_for("retry-after", "soon"));
  CHECK_FALSE(wait_for("x", "7"));
  char text[64];
  const std::time_t later = std::time(nullptr) + 100;
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", std::gmtime(&later));
  CHECK(wait_for("retry-after", text).value() == Approx(100).margin(5));
}

TEST_CASE("only what a later attempt may overcome is tried again") {
  for (const long status : {408L, 429L, 500L, 502L, 503L, 504L}) CHECK(hub::is_temporary(status));
  for (const long status : {400L, 401L, 403L, 404L, 416L, 501L}) CHECK_FALSE(hub::is_temporary(status));
}
