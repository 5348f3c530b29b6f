#include "ops/matmul/tiles.h"

#include <bit>

#include "ops/vector.h"

namespace lorikeet::ops::tiles {
namespace {

using vector::Bf16;

constexpr int kGroup = 8;  // lanes and elements that are transposed at a time
// How far ahead of their use numbers are asked for: elements of lanes that lie side by side, whose next row
// is further away than CPUs foresee, and numbers of others, of the right operand alone: a weight, which is
// read from memory, where the left one is mostly in a cache.
constexpr std::int64_t kRowsAhead = 16, kNumbersAhead = 128;
template <int width>
constexpr bool kIsRight = width == kNarrow.columns || width == kWide.columns;

template <typename T>
struct GroupOf {
  using Type __attribute__((vector_size(kGroup * sizeof(T)), aligned(sizeof(T)), may_alias)) = T;
};
template <typename T>
using Group = typename GroupOf<T>::Type;
using Floats = Group<float>;

LORIKEET_INLINE Floats load_group(const float* from) { return *reinterpret_cast<const Floats*>(from); }
LORIKEET_INLINE Floats load_group(const Bf16* from) {
  const auto bits = *reinterpret_cast<const Group<std::uint16_t>*>(from);
  return std::bit_cast<Floats>(__builtin_convertvector(bits, Group<std::uint32_t>) << 16);
}
LORIKEET_INLINE void store_group(const Floats& value, float* to) { *reinterpret_cast<Floats*>(to) = value; }

// How numbers become elements: `group` makes eight of a lane's numbers that lie side by side, `one` makes one
// of the number at `from` and, if it is `whole`, of the next one along the inner dimension.
template <typename T>
struct Widened {
  using Number = T;
  static constexpr std::int64_t kNumbers = 1;
  static LORIKEET_INLINE Floats group(const T* from) { return load_group(from); }
  static LORIKEET_INLINE float one(const T* from, std::int64_t, bool) { return vector::load(*from); }
};
struct Paired {
  using Number = Bf16;
  static constexpr std::int64_t kNumbers = 2;
  static LORIKEET_INLINE Floats group(const Bf16* from) {
    return std::bit_cast<Floats>(*reinterpret_cast<const Group<std::uint32_t>*>(from));
  }
  static LORIKEET_INLINE float one(const Bf16* from, std::int64_t inner_stride, bool whole) {
    const std::uint32_t second = whole ? from[inner_stride].bits : 0;
    return std::bit_cast<float>(from->bits | second << 16);
  }
};

// Rows become columns. In three steps that exchange halves of pairs, each within what one instruction can do.
LORIKEET_INLINE void transpose(Floats (&r)[kGroup]) {
  Floats pairs[kGroup], quads[kGroup];
  for (int i = 0; i < kGroup; i += 2) {
    pairs[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < kGroup; i += 4) {
    for (int j = 0; j < 2; ++j) {
      quads[i + 2 * j] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + 2 * j + 1] =
          __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = __builtin_shufflevector(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[i + 4] = __builtin_shufflevector(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// The elements of a lane that are asked for: `whole` of them have all their numbers, at most one more hasn't.
struct Extent {
  std::int64_t whole, all;
};

// The lanes of a tile that the operand has: all of them, or those in [begin, end). The others are zeros.
template <int width>
struct AllLanes {
  LORIKEET_INLINE bool has(int lane) const { return lane < width; }
};
template <int width>
struct SomeLanes {
  std::int64_t begin, end;
  LORIKEET_INLINE bool has(int lane) const { return lane < width && lane >= begin && lane < end; }
};

// Lanes whose inner numbers lie side by side: blocks of 8 x 8 elements are transposed. Groups overlap where
// the width isn't a multiple of 8: what a store writes behind its lanes is written again by the next.
template <int width, typename Form, typename Lanes>
LORIKEET_INLINE void pack_transposed(const typename Form::Number* from, std::int64_t stride,
                                     const Extent& extent, const Lanes& lanes, float* out) {
  constexpr int kGroups = (width + kGroup - 1) / kGroup;
  std::int64_t k = 0;
  for (; k + kGroup <= extent.whole; k += kGroup) {
    Floats block[kGroups][kGroup];
    for (int g = 0; g < kGroups; ++g) {
      for (int i = 0; i < kGroup; ++i) {
        const int lane = g * kGroup + i;
        if (kIsRight<width>) __builtin_prefetch(from + lane * stride + k * Form::kNumbers + kNumbersAhead);
        block[g][i] = lanes.has(lane) ? Form::group(from + lane * stride + k * Form::kNumbers) : Floats{};
      }
      transpose(block[g]);
    }
    for (int i = 0; i < kGroup; ++i)
      for (int g = 0; g < kGroups; ++g) store_group(block[g][i], out + (k + i) * width + g * kGroup);
  }
  for (; k < extent.all; ++k) {
    for (int lane = 0; lane < width; ++lane) {
      const auto* const at = from + lane * stride + k * Form::kNumbers;
      out[k * width + lane] = lanes.has(lane) ? Form::one(at, 1, k < extent.whole) : 0.0F;
    }
  }
}

// Lanes that lie side by side.
template <int width, typename Form, typename Lanes>
LORIKEET_INLINE void pack_rows(const typename Form::Number* from, std::int64_t stride, const Extent& extent,
                               const Lanes& lanes, float* out) {
  std::int64_t k = 0;
  for (; k < extent.whole; ++k) {
    const auto* const row = from + k * Form::kNumbers * stride;
    for (int i = 0; i < Form::kNumbers; ++i)
      __builtin_prefetch(row + (kRowsAhead * Form::kNumbers + i) * stride);
    for (int lane = 0; lane < width; ++lane)
      out[k * width + lane] = lanes.has(lane) ? Form::one(row + lane, stride, true) : 0.0F;
  }
  for (; k < extent.all; ++k) {
    const auto* const row = from + k * Form::kNumbers * stride;
    for (int lane = 0; lane < width; ++lane)
      out[k * width + lane] = lanes.has(lane) ? Form::one(row + lane, stride, false) : 0.0F;
  }
}

template <int width, typename Form, typename Lanes>
LORIKEET_INLINE void pack_lanes(const Operand& from, std::int64_t begin, std::int64_t first,
                                const Extent& extent, const Lanes& lanes, float* out) {
  // Lane 0 may lie outside of the operand, where it isn't read.
  const auto* const data = static_cast<const typename Form::Number*>(from.data) + begin * from.lane_stride +
                           first * Form::kNumbers * from.inner_stride;
  if (from.inner_stride == 1) {
    pack_transposed<width, Form>(data, from.lane_stride, extent, lanes, out);
  } else {
    pack_rows<width, Form>(data, from.inner_stride, extent, lanes, out);
  }
}

template <int width, typename Form>
LORIKEET_INLINE void pack_width(const Operand& from, std::int64_t begin, std::int64_t end, std::int64_t first,
                                const Extent& extent, float* out) {
  if (begin >= 0 && begin + width <= end) {
    pack_lanes<width, Form>(from, begin, first, extent, AllLanes<width>{}, out);
  } else {
    pack_lanes<width, Form>(from, begin, first, extent, SomeLanes<width>{-begin, end - begin}, out);
  }
}

template <typename Form>
LORIKEET_INLINE void pack_as(const Operand& from, std::int64_t begin, std::int64_t end, std::int64_t first,
                             std::int64_t count, int width, float* out) {
  const std::int64_t there = from.inner / Form::kNumbers - first;
  const Extent extent{.whole = count < there ? count : there, .all = count};
  switch (width) {
    case kNarrow.rows: return pack_width<kNarrow.rows, Form>(from, begin, end, first, extent, out);
    case kNarrow.columns: return pack_width<kNarrow.columns, Form>(from, begin, end, first, extent, out);
    case kWide.rows: return pack_width<kWide.rows, Form>(from, begin, end, first, extent, out);
    default: return pack_width<kWide.columns, Form>(from, begin, end, first, extent, out);
  }
}

LORIKEET_VECTOR_CLONES void pack_fp32(const Operand& from, std::int64_t begin, std::int64_t end,
                                      std::int64_t first, std::int64_t count, int width, float* out) {
  pack_as<Widened<float>>(from, begin, end, first, count, width, out);
}
LORIKEET_VECTOR_CLONES void pack_bf16(const Operand& from, std::int64_t begin, std::int64_t end,
                                      std::int64_t first, std::int64_t count, int width, float* out) {
  pack_as<Widened<Bf16>>(from, begin, end, first, count, width, out);
}
LORIKEET_VECTOR_CLONES void pack_pairs(const Operand& from, std::int64_t begin, std::int64_t end,
                                       std::int64_t first, std::int64_t count, int width, float* out) {
  pack_as<Paired>(from, begin, end, first, count, width, out);
}

}  // namespace

void pack(const Operand& from, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t count,
          int width, bool pairs, float* out) {
  const auto as = pairs ? pack_pairs : from.is_bf16 ? pack_bf16 : pack_fp32;
  as(from, begin, end, first, count, width, out);
}

}  // namespace lorikeet::ops::tiles
