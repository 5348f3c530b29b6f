#pragma once

#include <cstdint>

// Random contents for device memory. One launch each on the default stream; they throw Error when it fails.
namespace lorikeet::bench {

struct Normal {
  float mean = 0, deviation = 1;
};

void fill_bf16(void* out, std::int64_t count, std::uint64_t seed, const Normal& values);
void fill_fp32(float* out, std::int64_t count, std::uint64_t seed, const Normal& values);
/// Integers of [0, end).
void fill_integers(std::int64_t* out, std::int64_t count, std::uint64_t seed, std::int64_t end);
void fill_bytes(std::uint8_t* out, std::int64_t count, std::uint64_t seed);

}  // namespace lorikeet::bench
