#include "base/fingerprint.h"

#include "support/catch.h"

using namespace lorikeet;

namespace {

using Both = std::pair<std::string, std::string>;

}  // namespace

TEST_CASE("a fingerprint without a version is version 1") {
  CHECK(versioned_fingerprint(2, "ab") == "v2:ab");
  CHECK(comparable_fingerprints("ab", "v1:ab") == Both("ab", "ab"));
  CHECK(comparable_fingerprints("ab", "v1:cd") == Both("ab", "cd"));
}

TEST_CASE("fingerprints are compared by the newest function that made both") {
  CHECK(comparable_fingerprints("v1:a v2:b", "v1:a v2:c") == Both("b", "c"));
  CHECK(comparable_fingerprints("v1:a v2:b v10:d", "v10:e v2:b") == Both("d", "e"));
  CHECK(comparable_fingerprints("a", "v1:a v2:c") == Both("a", "a"));
}

TEST_CASE("fingerprints that no common function made are not comparable") {
  CHECK_FALSE(comparable_fingerprints("v2:a", "v3:a"));
  CHECK_FALSE(comparable_fingerprints("a", "v2:a"));
}
