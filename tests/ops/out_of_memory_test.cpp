// Which errors mean that memory ran out.
#include "ops/out_of_memory.h"

#include <c10/util/Exception.h>

#include <new>
#include <string>

#include "base/error.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

const c10::SourceLocation kHere{"here", __FILE__, __LINE__};
const std::string kNcclError =
    "NCCL error in: NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL "
    "version 2.28.9\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n";

}  // namespace

TEST_CASE("memory that ran out is known from each error that tells of it, and from no other") {
  CHECK(ops::is_out_of_memory(std::bad_alloc()));
  CHECK(ops::is_out_of_memory(c10::OutOfMemoryError(kHere, "CUDA out of memory. Tried to allocate 2 GiB")));
  CHECK(ops::is_out_of_memory(c10::AcceleratorError(kHere, 2, "CUDA error: out of memory")));
  CHECK(ops::is_out_of_memory(
      c10::Error(kHere, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")));
  CHECK(ops::is_out_of_memory(
      c10::Error(kHere, "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")));
  for (const char* last : {"Cuda failure 2 'out of memory'", "Failed to CUDA calloc async 4194304 bytes",
                           "Failed to CUDA malloc 8388608 bytes"})
    CHECK(ops::is_out_of_memory(c10::DistBackendError(kHere, kNcclError + last)));
  CHECK(ops::is_out_of_memory(
      Error("[norm] expected the kernel to start, got out of memory", ErrorKind::kRunFailed)));

  CHECK_FALSE(ops::is_out_of_memory(std::runtime_error("out of memory")));
  CHECK_FALSE(ops::is_out_of_memory(c10::AcceleratorError(kHere, 700, "CUDA error: an illegal access")));
  CHECK_FALSE(ops::is_out_of_memory(c10::Error(kHere, "CUBLAS_STATUS_EXECUTION_FAILED")));
  CHECK_FALSE(ops::is_out_of_memory(
      c10::Error(kHere, "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSetStream(handle, stream)`")));
  for (const char* last : {"Cuda failure 700 'an illegal access'", "Failed to CUDA host alloc 4096 bytes"})
    CHECK_FALSE(ops::is_out_of_memory(c10::DistBackendError(kHere, kNcclError + last)));
  CHECK_FALSE(ops::is_out_of_memory(Error("[batch] 'out of memory' is no number of tokens")));
}
