#include "ops/quantized/code_books.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lorikeet::ops {
namespace {

constexpr SmallBook kNF4{-1.0F,
                         -0.6961928009986877F,
                         -0.5250730514526367F,
                         -0.39491748809814453F,
                         -0.28444138169288635F,
                         -0.18477343022823334F,
                         -0.09105003625154495F,
                         0.0F,
                         0.07958029955625534F,
                         0.16093020141124725F,
                         0.24611230194568634F,
                         0.33791524171829224F,
                         0.44070982933044434F,
                         0.5626170039176941F,
                         0.7229568362236023F,
                         1.0F};

// Of 12, the largest; the bit above them is the sign.
constexpr std::array<float, 8> kFP4Twelfths{0.0F, 0.0625F, 8.0F, 12.0F, 4.0F, 6.0F, 2.0F, 3.0F};

constexpr SmallBook kE2M1{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                          -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

SmallBook make_fp4() {
  SmallBook book{};
  for (std::size_t i = 0; i < kFP4Twelfths.size(); ++i) {
    book[i] = kFP4Twelfths[i] / 12.0F;
    book[i + kFP4Twelfths.size()] = -book[i];
  }
  return book;
}

LargeBook make_dynamic() {
  static constexpr std::array<float, 7> kPowers{1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1e0F};
  LargeBook book{};
  std::size_t filled = 0;
  for (std::size_t exponent = 0; exponent < kPowers.size(); ++exponent) {
    // 2^exponent fractions: the middles of equal intervals of [0.1, 1].
    const std::size_t fractions = std::size_t{1} << exponent;
    const float step = (1.0F - 0.1F) / static_cast<float>(fractions);
    // Counted from the nearer end and rounded once, as torch.linspace does.
    const auto boundary = [&](std::size_t i) {
      return i < (fractions + 1) / 2 ? std::fma(step, static_cast<float>(i), 0.1F)
                                     : std::fma(-step, static_cast<float>(fractions - i), 1.0F);
    };
    for (std::size_t i = 0; i < fractions; ++i) {
      const float value = kPowers[exponent] * ((boundary(i) + boundary(i + 1)) / 2.0F);
      book[filled++] = value;
      book[filled++] = -value;
    }
  }
  book[filled++] = 0.0F;
  book[filled++] = 1.0F;
  std::sort(book.begin(), book.end());
  return book;
}

}  // namespace

const SmallBook& code_book(precision::CodeBook book) {
  static const SmallBook fp4 = make_fp4();
  switch (book) {
    case precision::CodeBook::kNF4: return kNF4;
    case precision::CodeBook::kFP4: return fp4;
    case precision::CodeBook::kE2M1: break;
  }
  return kE2M1;
}

const LargeBook& dynamic_book() {
  static const LargeBook book = make_dynamic();
  return book;
}

}  // namespace lorikeet::ops
