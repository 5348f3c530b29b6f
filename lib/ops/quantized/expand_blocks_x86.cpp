#include "ops/quantized/expand_blocks_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define LORIKEET_AVX2 __attribute__((target("avx2")))
#define LORIKEET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

namespace lorikeet::ops::cpu {
namespace {

// The bits of fp32 numbers whose upper halves are them as bf16: to nearest, ties to even; NaN stays NaN.
LORIKEET_AVX512 inline __m512i round_to_bf16(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  return _mm512_mask_mov_epi32(sum, nan, _mm512_set1_epi32(0x7FC00000));
}

// 16 16-bit numbers twice over, so that a lookup needn't clear the fifth bit of an index.
LORIKEET_AVX512 inline __m512i twice(__m256i table) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(table), table, 1);
}

}  // namespace

bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}

bool has_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}

LORIKEET_AVX512 void expand_avx512(const CodedBlocks& from, Rounding rounding, std::uint16_t* out) {
  const __m512 book = _mm512_loadu_ps(from.book);
  const std::uint8_t* codes = from.codes;
  for (std::int64_t block = 0; block < from.blocks; ++block) {
    const __m512 values = _mm512_mul_ps(book, _mm512_set1_ps(from.scales[block]));
    const __m512i table = twice(rounding == Rounding::kF16
                                    ? _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                                    : _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_to_bf16(values), 16)));
    for (std::int64_t pair = 0; pair < from.pairs; pair += 16, codes += 16, out += 32) {
      // A byte becomes two indices of 16 bits, of which five count: its high bits, then its low ones.
      const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
      const __m512i indices = _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16));
      _mm512_storeu_si512(out, _mm512_permutexvar_epi16(indices, table));
    }
  }
}

LORIKEET_AVX512 void expand_avx512(const CodedBlocks& from, Rounding rounding, float* out) {
  const __m512 book = _mm512_loadu_ps(from.book);
  const std::uint8_t* codes = from.codes;
  for (std::int64_t block = 0; block < from.blocks; ++block) {
    __m512 table = _mm512_mul_ps(book, _mm512_set1_ps(from.scales[block]));
    if (rounding == Rounding::kBF16) {
      table = _mm512_castsi512_ps(
          _mm512_and_si512(round_to_bf16(table), _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
    } else if (rounding == Rounding::kF16) {
      table = _mm512_cvtph_ps(_mm512_cvtps_ph(table, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    for (std::int64_t pair = 0; pair < from.pairs; pair += 8, codes += 8, out += 16) {
      // A byte becomes two indices of 32 bits, of which four count.
      const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
      const __m512i indices = _mm512_or_si512(_mm512_srli_epi64(bytes, 4), _mm512_slli_epi64(bytes, 32));
      _mm512_storeu_ps(out, _mm512_permutexvar_ps(indices, table));
    }
  }
}

LORIKEET_AVX2 void expand_avx2(const CodedBlocks& from, Rounding rounding, std::uint16_t* out) {
  const __m256i low_bytes = _mm256_set1_epi16(0xFF);
  const __m128i low_bits = _mm_set1_epi8(15);
  alignas(32) std::uint16_t table[16];
  for (std::int64_t block = 0; block < from.blocks; ++block) {
    fill_table(from.book, from.scales[block], rounding, table);
    // The table as one of low bytes and one of high bytes: a byte shuffle is the only lookup among 16.
    const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(table));
    const __m256i parts = _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_and_si256(both, low_bytes), _mm256_srli_epi16(both, 8)), 0xD8);
    const __m128i lows = _mm256_castsi256_si128(parts), highs = _mm256_extracti128_si256(parts, 1);
    const std::uint8_t* codes = from.codes + block * from.pairs;
    for (std::int64_t pair = 0; pair < from.pairs; pair += 16, codes += 16, out += 32) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
      const __m128i first = _mm_and_si128(_mm_srli_epi16(bytes, 4), low_bits);
      const __m128i second = _mm_and_si128(bytes, low_bits);
      const __m128i indices[2] = {_mm_unpacklo_epi8(first, second), _mm_unpackhi_epi8(first, second)};
      for (int half = 0; half < 2; ++half) {
        const __m128i low = _mm_shuffle_epi8(lows, indices[half]);
        const __m128i high = _mm_shuffle_epi8(highs, indices[half]);
        auto* to = reinterpret_cast<__m128i*>(out + 16 * half);
        _mm_storeu_si128(to, _mm_unpacklo_epi8(low, high));
        _mm_storeu_si128(to + 1, _mm_unpackhi_epi8(low, high));
      }
    }
  }
}

LORIKEET_AVX2 void expand_avx2(const CodedBlocks& from, Rounding rounding, float* out) {
  alignas(32) float table[16];
  for (std::int64_t block = 0; block < from.blocks; ++block) {
    fill_table(from.book, from.scales[block], rounding, table);
    const __m256 lower = _mm256_load_ps(table), upper = _mm256_load_ps(table + 8);
    const std::uint8_t* codes = from.codes + block * from.pairs;
    for (std::int64_t pair = 0; pair < from.pairs; pair += 4, codes += 4, out += 8) {
      const __m128i four = _mm_loadu_si32(codes);
      const __m256i bytes = _mm256_cvtepu8_epi64(four);
      const __m256i indices = _mm256_or_si256(_mm256_srli_epi64(bytes, 4), _mm256_slli_epi64(bytes, 32));
      // Three bits count in each lookup; the fourth, moved to the sign, chooses between the two.
      const __m256 chooses = _mm256_castsi256_ps(_mm256_slli_epi32(indices, 28));
      _mm256_storeu_ps(out, _mm256_blendv_ps(_mm256_permutevar8x32_ps(lower, indices),
                                             _mm256_permutevar8x32_ps(upper, indices), chooses));
    }
  }
}

}  // namespace lorikeet::ops::cpu

#else

namespace lorikeet::ops::cpu {

bool has_avx2() { return false; }
bool has_avx512() { return false; }
void expand_avx2(const CodedBlocks&, Rounding, float*) {}
void expand_avx2(const CodedBlocks&, Rounding, std::uint16_t*) {}
void expand_avx512(const CodedBlocks&, Rounding, float*) {}
void expand_avx512(const CodedBlocks&, Rounding, std::uint16_t*) {}

}  // namespace lorikeet::ops::cpu

#endif
