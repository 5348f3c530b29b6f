#include "base/crc32c.h"

#include <string>

#include "support/catch.h"

using namespace lorikeet;

TEST_CASE("CRC-32C of known texts is as published") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283);
  // RFC 3720, B.4.
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62A8AB43);
}
