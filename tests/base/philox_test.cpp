#include "base/philox.h"

#include "support/catch.h"

using lorikeet::Philox;
using lorikeet::PhiloxStream;

// Known answers of the reference implementation (Random123, kat_vectors, philox4x32 10 rounds).
TEST_CASE("philox gives the reference implementation's known answers") {
  CHECK(Philox::words({0, 0, 0, 0}, {0, 0}) ==
        Philox::Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox::words({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Philox::Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox::words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Philox::Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("streams of other seeds or names differ, the same agree") {
  PhiloxStream a(1, "q"), b(1, "q"), c(2, "q"), d(1, "k");
  const auto first = a.next();
  CHECK(first == b.next());
  CHECK(first != c.next());
  CHECK(first != d.next());
}

TEST_CASE("uniform, below and normal have the moments they should") {
  PhiloxStream stream(7, "moments");
  double sum = 0, square = 0, uniform = 0;
  std::array<int, 5> counts{};
  const int n = 40000;
  for (int i = 0; i < n; ++i) {
    const double x = stream.normal();
    sum += x;
    square += x * x;
    uniform += stream.uniform();
    ++counts[stream.below(5)];
  }
  // Five standard errors of each mean.
  CHECK(std::abs(sum / n) < 5.0 / std::sqrt(n));
  CHECK(std::abs(square / n - 1) < 5.0 * std::sqrt(2.0 / n));
  CHECK(std::abs(uniform / n - 0.5) < 5.0 * std::sqrt(1.0 / 12 / n));
  for (const int count : counts) CHECK(std::abs(count - n / 5.0) < 5.0 * std::sqrt(n * 0.16));
}
