#include "probe/machine.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;
using Catch::StartsWith;
using test::machine;
using test::only;
using test::set;

TEST_CASE("a machine in order has nothing to mend, whatever runs on it") {
  for (const int gpus : {0, 1, 4}) {
    const Sources sources = machine(gpus);
    CHECK(worst(run_checks(sources, /*with_well=*/true)) == Severity::kOk);
    CHECK(run_checks(sources, /*with_well=*/false).empty());
  }
}

TEST_CASE("checks of GPUs are made for runs on them, those of NCCL for runs on several") {
  CHECK(only(machine(0), "ECC").empty());
  CHECK_FALSE(only(machine(1), "ECC").empty());
  CHECK(only(machine(1), "NCCL_ALGO").empty());
  CHECK_FALSE(only(machine(2), "NCCL_ALGO").empty());
  Sources nodes = machine(1);
  nodes.needs.nodes = 2;
  CHECK_FALSE(only(nodes, "NCCL_ALGO").empty());
}

TEST_CASE("every check has a name of its own and says something where all is well") {
  std::vector<std::string> names;
  for (const Check& check : passive_checks()) names.emplace_back(check.name);
  for (const std::string& name : names) {
    CHECK(std::count(names.begin(), names.end(), name) == 1);
    CHECK_THAT(only(machine(2), name), StartsWith("ok: ") || Contains("2 findings"));
    CHECK_THAT(only(machine(2), name), !StartsWith("ok:  ["));
  }
}

TEST_CASE("CUDA_LAUNCH_BLOCKING=1 is a warning on GPUs and a note on the CPU") {
  Sources sources = machine(1);
  for (const char* off : {"0", ""}) {
    set(sources, "CUDA_LAUNCH_BLOCKING", off);
    CHECK_THAT(only(sources, "CUDA_LAUNCH_BLOCKING"), StartsWith("ok: "));
  }
  set(sources, "CUDA_LAUNCH_BLOCKING", "1");
  CHECK_THAT(only(sources, "CUDA_LAUNCH_BLOCKING"),
             StartsWith("warning: CUDA_LAUNCH_BLOCKING=1: ") && Contains("[unset CUDA_LAUNCH_BLOCKING]"));
  Sources cpu = machine(0);
  set(cpu, "CUDA_LAUNCH_BLOCKING", "1");
  CHECK_THAT(only(cpu, "CUDA_LAUNCH_BLOCKING"), StartsWith("note: "));
}

TEST_CASE("switches for debugging CUDA are each a warning") {
  Sources sources = machine(1);
  set(sources, "CUDA_INJECTION64_PATH", "/opt/tool.so");
  set(sources, "CUDA_FORCE_PTX_JIT", "1");
  set(sources, "CUDA_CACHE_DISABLE", "0");
  const Findings found = test::said(sources, "CUDA debugging");
  REQUIRE(found.size() == 2);
  CHECK_THAT(found[0].sentence, StartsWith("CUDA_INJECTION64_PATH=/opt/tool.so: "));
  CHECK(found[1].command == "unset CUDA_FORCE_PTX_JIT");
  CHECK(worst(found) == Severity::kWarning);
}

TEST_CASE("PYTORCH_NO_CUDA_MEMORY_CACHING counts with any value") {
  Sources sources = machine(1);
  set(sources, "PYTORCH_NO_CUDA_MEMORY_CACHING", "0");
  CHECK_THAT(only(sources, "PYTORCH_NO_CUDA_MEMORY_CACHING"), StartsWith("warning: "));
}

TEST_CASE("NVIDIA_TF32_OVERRIDE against the precision policy makes a run unfit") {
  Sources sources = machine(1);
  const auto with = [&](DType compute, config::Matmul matmul, const char* value) {
    sources.needs.policy.compute = compute;
    sources.needs.policy.matmul = matmul;
    set(sources, "NVIDIA_TF32_OVERRIDE", value);
    return only(sources, "NVIDIA_TF32_OVERRIDE");
  };
  CHECK_THAT(
      with(DType::kF32, config::Matmul::kFp32, "1"),
      StartsWith("unfit: ") && Contains("multiply in TF32, against the run's precision policy (exact fp32)"));
  CHECK_THAT(with(DType::kF32, config::Matmul::kTf32, "0"),
             StartsWith("unfit: ") && Contains("multiply exactly"));
  CHECK_THAT(with(DType::kF32, config::Matmul::kFp32, "0"), StartsWith("note: "));
  CHECK_THAT(with(DType::kF32, config::Matmul::kTf32, "1"), StartsWith("note: "));
  CHECK_THAT(with(DType::kBF16, config::Matmul::kFp32, "1"), StartsWith("note: "));
}

TEST_CASE("CUDA_VISIBLE_DEVICES that names what isn't there, or hides all, is told") {
  Sources sources = machine(2);
  set(sources, "CUDA_VISIBLE_DEVICES", "0,7");
  sources.gpus.visible = device::visible_devices(sources.gpus.inventory, "0,7");
  CHECK_THAT(only(sources, "CUDA_VISIBLE_DEVICES"), StartsWith("warning: ") && Contains("1 of 2 GPUs"));
  set(sources, "CUDA_VISIBLE_DEVICES", "");
  sources.gpus.visible = device::visible_devices(sources.gpus.inventory, "");
  CHECK_THAT(only(sources, "CUDA_VISIBLE_DEVICES"), StartsWith("note: it hides all 2 GPUs"));
  Sources none = machine(0);
  set(none, "CUDA_VISIBLE_DEVICES", "7");
  CHECK_THAT(only(none, "CUDA_VISIBLE_DEVICES"), StartsWith("note: ") && Contains("no GPU is known"));
}
