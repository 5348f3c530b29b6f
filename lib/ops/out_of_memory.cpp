#include "ops/out_of_memory.h"

#include <c10/util/Exception.h>

#include <new>
#include <string>

#include "base/error.h"
#include "comm/reason.h"

namespace lorikeet::ops {
namespace {

constexpr std::int32_t kCudaErrorMemoryAllocation = 2;  // of cudaError_t

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr || comm::is_nccl_out_of_memory(error))
    return true;
  if (const auto* of_cuda = dynamic_cast<const c10::AcceleratorError*>(&error))
    return of_cuda->get_error_code() == kCudaErrorMemoryAllocation;
  const auto says = [&](const char* text) {
    return std::string(error.what()).find(text) != std::string::npos;
  };
  // Launches of our kernels, which say cudaGetErrorString of the same.
  if (dynamic_cast<const Error*>(&error) != nullptr) return says("kernel to start, got out of memory");
  // cuBLAS is not initialized where a card has no memory left for its handle.
  return dynamic_cast<const c10::Error*>(&error) != nullptr &&
         (says("CUBLAS_STATUS_ALLOC_FAILED") ||
          (says("CUBLAS_STATUS_NOT_INITIALIZED") && says("cublasCreate")));
}

}  // namespace lorikeet::ops
