#include "ops/dry_run.h"

#include <ATen/ATen.h>

#include <optional>

#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "support/catch.h"

using namespace lorikeet;
using ops::DryRun;
using ops::DryTarget;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

at::Tensor dry(std::int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(at::kMeta));
}

}  // namespace

TEST_CASE("the peak is the moment when tensors took most, by part") {
  DryRun run({});
  const at::Tensor weights = dry(100);
  run.assign(1);
  { const at::Tensor gone = dry(50); }
  const at::Tensor scratch = dry(40), none = dry(0);
  CHECK(run.now().total() == 140);
  CHECK(run.peak().total() == 150);
  CHECK(run.peak().parts[0] == 50);
  CHECK(run.peak().parts[1] == 100);
  CHECK(run.peak().unused == 0);
}

TEST_CASE("what has no part counts as the one that is named, until it is assigned") {
  DryRun run({});
  const at::Tensor first = dry(10);
  run.count_others_as(3);
  CHECK(run.now().parts[3] == 10);
  at::Tensor second = dry(20);
  CHECK(run.now().parts[3] == 30);
  run.assign(2);
  run.count_others_as(0);
  CHECK(run.now().parts[2] == 30);
  second.reset();
  CHECK(run.now().parts[2] == 10);
  CHECK(run.now().total() == 10);
}

TEST_CASE("a view shares its tensor's memory, and both may outlive the run") {
  std::optional<DryRun> run;
  run.emplace(DryTarget{});
  at::Tensor tensor = dry(64);
  at::Tensor view = tensor.slice(0, 0, 8);
  tensor.reset();
  CHECK(run->now().total() == 64);
  run.reset();
  view.reset();
  const DryRun next({});
  CHECK(next.now().total() == 0);
}

TEST_CASE("on a CPU large blocks wait as the allocator lets them, on a GPU sizes are rounded up") {
  {
    const DryRun cpu({.device = at::kCPU});
    { const at::Tensor gone = dry(40 * kMiB); }
    CHECK(cpu.now().unused == 40 * kMiB);
    const at::Tensor other = dry(20 * kMiB);
    CHECK(cpu.peak().total() == 40 * kMiB);
    CHECK(cpu.peak().unused == 0);
    CHECK(cpu.most_held() == 60 * kMiB);
  }
  const DryRun gpu({.device = at::kCUDA});
  { const at::Tensor gone = dry(40 * kMiB); }
  CHECK(gpu.now().total() == 0);
  const at::Tensor odd = dry(513);
  CHECK(gpu.now().total() == 1024);
}

TEST_CASE("operators choose the target's kernels, and only in the thread and time of a dry run") {
  const at::Tensor x = at::empty({4, 8}, at::TensorOptions().dtype(at::kBFloat16).device(at::kMeta));
  const at::Tensor weight = at::empty({8}, x.options());
  const auto keeps_statistics = [&] {
    ops::NormStatistics statistics;
    CHECK(ops::norm(x, {weight}, {.eps = 1e-5}, &statistics).sizes() == x.sizes());
    return statistics.rstd.defined();
  };
  CHECK(ops::kernels_of(x) == at::kMeta);
  CHECK_FALSE(keeps_statistics());
  {
    const DryRun cpu({.device = at::kCPU, .native_products = false});
    CHECK(ops::kernels_of(x) == at::kCPU);
    CHECK(keeps_statistics());
    CHECK_FALSE(ops::multiplies_natively(at::kBFloat16, x.device()));
    CHECK(ops::product_type(x) == at::kFloat);
    CHECK(ops::matmul_operand(x.to(at::kHalf)).scalar_type() == at::kFloat);
    CHECK_THROWS(DryRun({}));
  }
  const DryRun gpu({.device = at::kCUDA, .native_products = false});
  CHECK(ops::kernels_of(x) == at::kCUDA);
  CHECK(keeps_statistics());
  CHECK(ops::multiplies_natively(at::kBFloat16, x.device()));
}
