#pragma once

#include <cstdint>

// The mask's arithmetic, shared word for word by the CPU and the CUDA path.
#ifdef __CUDACC__
#define LORIKEET_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LORIKEET_HOST_DEVICE inline
#endif

namespace lorikeet::ops {

struct DropoutWords {
  std::uint32_t v[4];
};

/// What is the same for all rows of one call. Keeps a feature when its 32-bit word is at least `threshold`.
struct DropoutKey {
  std::uint32_t key0, key1;
  std::uint32_t threshold;
  float scale;
};

/// Philox4x32-10, equal to lorikeet::Philox::words, which device code can't call.
LORIKEET_HOST_DEVICE DropoutWords dropout_philox(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                                 std::uint32_t c3, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = static_cast<std::uint64_t>(0xD2511F53U) * c0;
    const std::uint64_t p1 = static_cast<std::uint64_t>(0xCD9E8D57U) * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

/// The key of one (seed, step, group): a Philox block of its own, so that near values give unrelated streams.
LORIKEET_HOST_DEVICE DropoutKey dropout_key(std::uint64_t seed, std::uint64_t step, std::uint32_t group,
                                            double p) {
  const DropoutWords words = dropout_philox(
      static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32), group,
      0x4C4F5241U /* "LORA" */, static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  return {words.v[0], words.v[1], static_cast<std::uint32_t>(p * 4294967296.0),
          static_cast<float>(1.0 / (1.0 - p))};
}

/// The words of features 4 * block .. 4 * block + 3 of one row.
LORIKEET_HOST_DEVICE DropoutWords dropout_block(const DropoutKey& key, std::int64_t sample,
                                                std::int64_t position, std::uint32_t block) {
  const std::uint64_t id = static_cast<std::uint64_t>(sample);
  return dropout_philox(block, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(id),
                        static_cast<std::uint32_t>(id >> 32), key.key0, key.key1);
}

}  // namespace lorikeet::ops
