#include "device_memory.h"

#include <cstddef>
#include <string>

#include "base/error.h"

namespace lorikeet::bench {
namespace {

constexpr std::int64_t kBF16Bytes = 2;

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw Error(std::string("[") + call + "] expected success, got " + cudaGetErrorString(status),
              ErrorKind::kRunFailed);
}

int capability() {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

DeviceMemory::~DeviceMemory() {
  // A failed kernel's error comes back from here, too; it was reported by then.
  for (void* buffer : buffers_) (void)cudaFree(buffer);
}

void* DeviceMemory::allocate(std::int64_t bytes) {
  void* buffer = nullptr;
  check(cudaMalloc(&buffer, static_cast<std::size_t>(bytes)), "cudaMalloc");
  buffers_.push_back(buffer);
  allocated_ += bytes;
  ++seed_;
  return buffer;
}

void* DeviceMemory::bf16(std::int64_t count, const Normal& values) {
  void* buffer = allocate(count * kBF16Bytes);
  fill_bf16(buffer, count, seed_, values);
  return buffer;
}

float* DeviceMemory::fp32(std::int64_t count, const Normal& values) {
  auto* buffer = static_cast<float*>(allocate(count * static_cast<std::int64_t>(sizeof(float))));
  fill_fp32(buffer, count, seed_, values);
  return buffer;
}

std::int64_t* DeviceMemory::integers(std::int64_t count, std::int64_t end) {
  auto* buffer =
      static_cast<std::int64_t*>(allocate(count * static_cast<std::int64_t>(sizeof(std::int64_t))));
  fill_integers(buffer, count, seed_, end);
  return buffer;
}

std::uint8_t* DeviceMemory::bytes(std::int64_t count) {
  auto* buffer = static_cast<std::uint8_t*>(allocate(count));
  fill_bytes(buffer, count, seed_);
  return buffer;
}

}  // namespace lorikeet::bench
