#include "ops/cuda_library.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;

// A process of its own (tests/ops/CMakeLists.txt): what is loaded stays. It needs no GPU.
TEST_CASE("libtorch's CUDA half is loaded when a GPU is asked for, and not before", "[.][cuda_library]") {
  REQUIRE_FALSE(c10::impl::hasDeviceGuardImpl(at::kCUDA));
  const std::string error =
      test::error_text([] { CHECK(ops::cuda_device(1) == at::Device("cuda:1")); }, ErrorKind::kEnvironment);
  if (error != "no error") {  // a torch wheel without CUDA
    CHECK_THAT(error, Catch::Contains("[device] can't load the CUDA half of libtorch"));
    CHECK_THAT(error, Catch::Contains("device=cpu"));
    return;
  }
  CHECK(c10::impl::hasDeviceGuardImpl(at::kCUDA));
  CHECK(at::detail::getCUDAHooks().isBuilt());
  CHECK_NOTHROW(ops::load_cuda_library());
}
