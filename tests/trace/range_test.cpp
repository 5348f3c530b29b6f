#include "trace/range.h"

#include <torch/csrc/profiler/stubs/base.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "support/catch.h"

using namespace lorikeet::trace;

namespace {

// What a tool that reads NVTX would see, in place of libtorch's CUDA half.
struct FakeNvtx : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex*, torch::profiler::impl::ProfilerVoidEventStub*, int64_t*) const override {}
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub*,
                const torch::profiler::impl::ProfilerVoidEventStub*) const override {
    return 0;
  }
  void mark(const char*) const override {}
  void rangePush(const char* name) const override { seen.emplace_back(name); }
  void rangePop() const override { seen.emplace_back("end"); }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}

  mutable std::vector<std::string> seen;
};

FakeNvtx nvtx;

// Looked at once a process, before the first range.
const bool prepared = [] {
  torch::profiler::impl::registerCUDAMethods(&nvtx);
  return setenv("NVTX_INJECTION64_PATH", "a tool's library", 1) == 0;
}();

}  // namespace

TEST_CASE("ranges are told to NVTX with their figures, nested as the objects are") {
  REQUIRE(prepared);
  nvtx.seen.clear();
  {
    const Range step("step", {{"step", 3}});
    { const Range forward("forward", {{"tokens", 10}, {"bytes", 20}}); }
    const Range backward("backward");
  }
  CHECK(nvtx.seen == std::vector<std::string>{"step step=3", "forward tokens=10 bytes=20", "end", "backward",
                                              "end", "end"});
}
