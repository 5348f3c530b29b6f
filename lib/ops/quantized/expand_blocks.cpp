#include "ops/quantized/expand_blocks.h"

#include <c10/util/Half.h>

#include "ops/quantized/expand_blocks_x86.h"
#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

float rounded(float value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNone: return value;
    case Rounding::kF16: return static_cast<float>(c10::Half(value));
    case Rounding::kBF16: break;
  }
  vector::Bf16 bits{};
  vector::store(value, bits);
  return vector::load(bits);
}

template <typename T>
void expand_plainly(const CodedBlocks& from, Rounding rounding, T* out) {
  T table[16];
  const std::uint8_t* codes = from.codes;
  for (std::int64_t block = 0; block < from.blocks; ++block) {
    fill_table(from.book, from.scales[block], rounding, table);
    for (std::int64_t i = 0; i < from.pairs; ++i, ++codes) {
      *out++ = table[*codes >> 4];
      *out++ = table[*codes & 15];
    }
  }
}

template <typename T>
void expand(const CodedBlocks& from, Rounding rounding, Lookup lookup, T* out) {
  // The vector forms take 16 bytes of codes at a time.
  if (lookup == Lookup::kPlain || from.pairs % 16 != 0) {
    expand_plainly(from, rounding, out);
  } else if (lookup == Lookup::kAvx2) {
    expand_avx2(from, rounding, out);
  } else {
    expand_avx512(from, rounding, out);
  }
}

}  // namespace

Lookup best_lookup() {
  static const Lookup best = has_avx512() ? Lookup::kAvx512 : has_avx2() ? Lookup::kAvx2 : Lookup::kPlain;
  return best;
}

void fill_table(const float* book, float scale, Rounding rounding, float* table) {
  for (int code = 0; code < 16; ++code) table[code] = rounded(book[code] * scale, rounding);
}

void fill_table(const float* book, float scale, Rounding rounding, std::uint16_t* table) {
  for (int code = 0; code < 16; ++code) {
    const float value = book[code] * scale;
    if (rounding == Rounding::kF16) {
      table[code] = c10::Half(value).x;
    } else {
      vector::Bf16 bits{};
      vector::store(value, bits);
      table[code] = bits.bits;
    }
  }
}

void expand_blocks(const CodedBlocks& from, Rounding rounding, Lookup lookup, float* out) {
  expand(from, rounding, lookup, out);
}

void expand_blocks(const CodedBlocks& from, Rounding rounding, Lookup lookup, std::uint16_t* out) {
  expand(from, rounding, lookup, out);
}

}  // namespace lorikeet::ops::cpu
