#include "probe/machine.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;
using Catch::StartsWith;
using test::machine;
using test::only;
using test::said;

TEST_CASE("a GPU that has stopped answering is a warning, also for a run on the CPU") {
  Sources sources = machine(0);
  sources.gpus.inventory.absent = "";
  sources.gpus.inventory.lost = {{3, "NVIDIA Test 100 (GPU-3)", "GPU is lost"}};
  const Findings found = said(sources, "GPUs");
  REQUIRE(found.size() == 2);
  CHECK(found[0].severity == Severity::kWarning);
  CHECK(found[0].sentence ==
        "the GPU with NVML's number 3, NVIDIA Test 100 (GPU-3), has stopped answering: GPU is lost");
}

TEST_CASE("a run on GPUs of which NVML reports nothing goes on, with a note") {
  Sources sources = machine(1);
  sources.gpus.inventory = device::no_inventory("it refuses to start");
  sources.gpus.used.clear();
  CHECK_THAT(only(sources, "GPUs"),
             StartsWith("note: NVML reports nothing") && Contains("it refuses to start"));
  CHECK(worst(run_checks(sources, true)) == Severity::kNote);
}

TEST_CASE("MIG mode is unfit for a run on several GPUs") {
  Sources one = machine(1), two = machine(2);
  one.gpus.inventory.gpus[0].mig = two.gpus.inventory.gpus[0].mig = true;
  CHECK(worst(said(one, "GPUs")) == Severity::kOk);
  CHECK(worst(said(two, "GPUs")) == Severity::kUnfit);
}

TEST_CASE("GPUs that CUDA doesn't offer are unfit, with what is behind it, unless the CPU is meant") {
  Sources sources = machine(2);
  CHECK(only(sources, "CUDA") == "ok: starts []");
  sources.needs.devices.clear();
  sources.gpus.used.clear();
  sources.gpus.offered = 0;
  sources.gpus.start_code = 802;
  CHECK(only(sources, "CUDA") ==
        "unfit: 2 GPUs are here, but CUDA doesn't start: the system isn't ready: GPUs behind an NVSwitch "
        "need the "
        "fabric manager (CUDA error 802) [systemctl start nvidia-fabricmanager, of the driver's version; or "
        "device=cpu, if that is what you want]");
  sources.gpus.start_code = 12345;
  CHECK_THAT(only(sources, "CUDA"), StartsWith("unfit: ") && Contains("(CUDA error 12345)"));
  sources.gpus.start_code.reset();
  CHECK_THAT(only(sources, "CUDA"), StartsWith("unfit: ") && Contains("libcuda.so.1 can't be loaded"));
  sources.build.cuda = 0;
  CHECK_THAT(only(sources, "CUDA"), StartsWith("warning: ") && Contains("this build is without CUDA"));
  sources.gpus.offered = 2;
  CHECK_THAT(only(sources, "CUDA"), StartsWith("warning: "));
  sources.needs.cpu_is_meant = true;
  CHECK_THAT(only(sources, "CUDA"), StartsWith("ok: "));
  sources.needs.cpu_is_meant = false;
  sources.gpus.visible.devices.clear();  // CUDA_VISIBLE_DEVICES hides them
  CHECK_THAT(only(sources, "CUDA"), StartsWith("ok: "));
}

TEST_CASE("a driver that doesn't start is unfit where NVML, too, tells of no GPU, unless the CPU is meant") {
  Sources sources = machine(0);
  sources.gpus.offered = 0;
  for (const int code : {803, 999}) {
    sources.gpus.start_code = code;
    CHECK_THAT(only(sources, "CUDA"), StartsWith("unfit: NVIDIA's driver is here, but CUDA doesn't start") &&
                                          Contains("CUDA error " + std::to_string(code)));
  }
  sources.needs.cpu_is_meant = true;
  CHECK_THAT(only(sources, "CUDA"), StartsWith("ok: isn't needed"));
  sources.needs.cpu_is_meant = false;
  // A machine without GPUs, which may have the driver's packages; one without these.
  sources.gpus.start_code = 100;
  CHECK_THAT(only(sources, "CUDA"), StartsWith("ok: there is no GPU"));
  sources.gpus.start_code.reset();
  CHECK_THAT(only(sources, "CUDA"), StartsWith("ok: there is no GPU"));
}

TEST_CASE("a card that CUDA 13 has dropped is unfit") {
  Sources sources = machine(1);
  sources.gpus.inventory.gpus[0].compute_major = 7;
  CHECK_THAT(
      only(sources, "architecture"),
      StartsWith("unfit: ") && Contains("compute capability 7.0, and CUDA 13.0 runs on 7.5 and later only"));
  sources.build.cuda = 12080;
  sources.build.architectures = {"70-real"};
  CHECK_THAT(only(sources, "architecture"), StartsWith("ok: "));
}

TEST_CASE("a driver for an older major version of CUDA is unfit, for an older minor one a note") {
  Sources sources = machine(1);
  sources.gpus.inventory.driver_version = "550.54.14";
  sources.gpus.driver_cuda = 12040;
  CHECK(only(sources, "driver") ==
        "unfit: the driver 550.54.14 is for CUDA up to 12.4, and this build needs CUDA 13.0: nothing will "
        "start on "
        "the GPU [install driver 580.65.06 or newer]");
  sources.build.cuda = 12080;
  CHECK_THAT(only(sources, "driver"), StartsWith("note: "));
  sources.gpus.driver_cuda = 13010;
  CHECK_THAT(only(sources, "driver"), StartsWith("ok: "));
  sources.build.cuda = 99000;
  CHECK_THAT(only(sources, "driver"),
             StartsWith("unfit: ") && Contains("the driver that came with that CUDA"));
  sources.gpus.driver_cuda.reset();
  CHECK_THAT(only(sources, "driver"), StartsWith("ok: "));
}

TEST_CASE("a GPU that the build has no kernels for is unfit, and reported once") {
  Sources sources = machine(2);
  for (device::GpuInfo& gpu : sources.gpus.inventory.gpus) gpu.compute_major = 12;
  CHECK(only(sources, "architecture") ==
        "unfit: NVIDIA Test 100 has compute capability 12.0, and this build's own kernels are for "
        "80-real, 90a-real [cmake --preset release -DCMAKE_CUDA_ARCHITECTURES=120, and build again]");
  sources.gpus.inventory.gpus[0].compute_major.reset();
  sources.gpus.inventory.gpus[1].compute_major = 8;
  CHECK_THAT(only(sources, "architecture"), StartsWith("ok: "));
}

TEST_CASE("uncorrected memory errors are a warning, those of long ago a note") {
  Sources sources = machine(2);
  sources.gpus.inventory.gpus[1].ecc_errors = {7, 0, 7, 2};
  CHECK_THAT(only(sources, "ECC"),
             StartsWith("note: ") && Contains("2 uncorrected memory errors in its life"));
  sources.gpus.inventory.gpus[1].ecc_errors = {7, 1, 7, 2};
  CHECK_THAT(only(sources, "ECC"), StartsWith("warning: NVIDIA Test 100 (GPU-00000001, 00000000:02:00.0)") &&
                                       Contains("nvidia-smi --gpu-reset -i GPU-00000001"));
}

TEST_CASE("clocks held down by heat are a warning, by the power cap alone a note") {
  Sources sources = machine(1);
  auto& reasons = *sources.gpus.inventory.gpus[0].throttle_reasons;
  reasons = {"power cap"};
  CHECK_THAT(only(sources, "throttling"), StartsWith("note: "));
  reasons = {"power cap", "thermal (hardware)"};
  CHECK_THAT(only(sources, "throttling"),
             StartsWith("warning: ") && Contains("power cap, thermal (hardware)"));
  sources.gpus.inventory.gpus[0].throttle_reasons.reset();
  CHECK_THAT(only(sources, "throttling"), StartsWith("ok: "));
}

TEST_CASE("a PCIe link with fewer lanes than it could have is a warning") {
  Sources sources = machine(1);
  sources.gpus.inventory.gpus[0].pcie_width = 4;
  CHECK_THAT(only(sources, "PCIe link"), StartsWith("warning: ") && Contains("4 of 16 PCIe lanes"));
  sources.gpus.inventory.gpus[0].pcie_width_max.reset();
  CHECK_THAT(only(sources, "PCIe link"), StartsWith("ok: "));
}

TEST_CASE("memory that others hold is a warning that names them") {
  Sources sources = machine(1);
  device::GpuInfo& gpu = sources.gpus.inventory.gpus[0];
  gpu.memory_used_bytes = std::uint64_t{600} << 20;
  CHECK_THAT(only(sources, "other processes"), StartsWith("ok: "));
  gpu.memory_used_bytes = std::uint64_t{20} << 30;
  CHECK_THAT(only(sources, "other processes"),
             StartsWith("warning: ") && Contains("processes that aren't shown"));
  gpu.processes = {{1234, "python", std::uint64_t{20} << 30}, {77, {}, {}}};
  CHECK_THAT(only(sources, "other processes"), Contains("20.0 GiB") && Contains("python 1234, process 77"));
}

TEST_CASE("GPUs that the run doesn't take aren't looked at") {
  Sources sources = machine(2);
  sources.gpus.used = {0};
  sources.needs.devices.resize(1);
  sources.needs.ranks = 1;
  sources.gpus.inventory.gpus[1].ecc_errors.uncorrected = 5;
  sources.gpus.inventory.gpus[1].pcie_width = 1;
  CHECK(worst(run_checks(sources, true)) == Severity::kOk);
}
