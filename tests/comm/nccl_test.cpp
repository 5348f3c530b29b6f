#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/backends.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using Catch::Contains;

// The programs don't link libtorch's CUDA half: the module brings it.
TEST_CASE("joining an NCCL group loads its module, and without a GPU says what is missing") {
  CHECK_FALSE(c10::impl::hasDeviceGuardImpl(at::kCUDA));
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const std::string error = test::error_text(
      [&] { (void)comm::join_nccl(store, /*rank=*/0, /*size=*/1, at::Device(at::kCUDA, 0), {}); },
      ErrorKind::kEnvironment);
  CAPTURE(error);
  if (error.find("expected a build with CUDA") != std::string::npos) return;  // the stub
  CHECK(c10::impl::hasDeviceGuardImpl(at::kCUDA));
  const bool joined = error == "no error";  // on a machine with a GPU
  if (!joined) CHECK_THAT(error, Contains("[rank 0] can't join the NCCL group of 1 processes: "));
}
