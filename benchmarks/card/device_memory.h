#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "random_fill.h"

namespace lorikeet::bench {

/// Throws Error("[call] ...") where a call of the CUDA runtime failed.
void check(cudaError_t status, const char* call);

/// The first card's compute capability, 10 * major + minor.
int capability();

/// Buffers on the current card, filled with random contents; freed with this object. Outputs are filled, too.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* bf16(std::int64_t count, const Normal& values = {});
  float* fp32(std::int64_t count, const Normal& values = {});
  /// Integers of [0, end).
  std::int64_t* integers(std::int64_t count, std::int64_t end);
  std::uint8_t* bytes(std::int64_t count);

  /// Bytes of all buffers.
  std::int64_t allocated() const { return allocated_; }

 private:
  void* allocate(std::int64_t bytes);

  std::vector<void*> buffers_;
  std::int64_t allocated_ = 0;
  std::uint64_t seed_ = 0;  // another one for each buffer
};

}  // namespace lorikeet::bench
