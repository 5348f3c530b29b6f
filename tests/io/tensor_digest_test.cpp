#include "io/tensor_digest.h"

#include "support.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::io;
using Catch::Contains;

namespace {

constexpr std::size_t kBlock = TensorDigest::kBlockBytes;

std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24);
  return bytes;
}

TensorView view(std::string_view bytes) {
  return {"t", DType::kU8, {static_cast<std::int64_t>(bytes.size())}, bytes};
}

}  // namespace

TEST_CASE("one flipped bit anywhere changes a tensor's digest") {
  std::string bytes = noise(2 * kBlock + 1000);
  const TensorDigest before = digest_of(view(bytes));
  for (const std::size_t at : {std::size_t{0}, kBlock - 1, kBlock, kBlock + kBlock / 2, bytes.size() - 1}) {
    CAPTURE(at);
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    CHECK(digest_of(view(bytes)) != before);
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  }
  CHECK(digest_of(view(bytes)) == before);
}

TEST_CASE("blocks that changed places, a dtype and a shape change a tensor's digest") {
  const std::string a = noise(kBlock), b(kBlock, 'b'), joined = a + b, swapped = b + a;
  CHECK(digest_of(view(joined)) != digest_of(view(swapped)));
  const std::string bytes = noise(64);
  const TensorDigest digest = digest_of(view(bytes));
  CHECK(digest_of({"t", DType::kU8, {8, 8}, bytes}) != digest);
  CHECK(digest_of({"t", DType::kI8, {64}, bytes}) != digest);
  CHECK(digest_of({"other", DType::kU8, {64}, bytes}) == digest);  // the name is the caller's
  CHECK(digest_of(view("")) != digest_of({"t", DType::kU8, {2, 0}, ""}));
}

TEST_CASE("parts of a tensor's blocks add up to the whole in any order") {
  const std::string bytes = noise(2 * kBlock + 5);
  const TensorView tensor = view(bytes);
  TensorDigest first, second;
  second.add_block(tensor, 2);
  second.add_header(tensor);
  first.add_block(tensor, 1);
  first.add_block(tensor, 0);
  CHECK((second += first) == digest_of(tensor));
}

TEST_CASE("a digest reads back from its digits, which depend on no machine or version") {
  const TensorDigest digest = digest_of(view("hello"));
  CHECK(TensorDigest::from_hex(digest.hex()) == digest);
  CHECK(digest.hex() == "9aa24aef9b90245040056dfc69c5cfaa");
  for (const char* bad :
       {"", "12", "0000000000000000000000000000000g", "000000000000000000000000000000001"}) {
    CHECK_THAT(test::error_text([&] { TensorDigest::from_hex(bad); }), Contains("hexadecimal"));
  }
}
