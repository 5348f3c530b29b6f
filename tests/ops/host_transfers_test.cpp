#include "ops/host_transfers.h"

#include <ATen/ATen.h>

#include "ops/dry_run.h"
#include "support/catch.h"

using namespace lorikeet;
using ops::HostTransfers;

TEST_CASE("on a CPU copies are there at once, in memory of their own") {
  HostTransfers transfers(at::kCPU);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
    const at::Tensor tensor = at::arange(12, dtype).view({3, 4});
    auto host = transfers.to_host(tensor);
    CHECK(host.to.data_ptr() != tensor.data_ptr());
    auto back = transfers.to_device(host.to);
    transfers.wait(host.done);
    transfers.wait(back.done);
    CHECK(back.to.data_ptr() != host.to.data_ptr());
    CHECK(back.to.scalar_type() == dtype);
    CHECK(at::equal(back.to, tensor));
  }
}

TEST_CASE("a strided tensor comes back dense") {
  HostTransfers transfers(at::kCPU);
  const at::Tensor tensor = at::arange(12).view({3, 4}).narrow(1, 1, 2);
  const at::Tensor host = transfers.to_host(tensor).to;
  CHECK(host.is_contiguous());
  CHECK(at::equal(host, tensor));
}

TEST_CASE("a dry run for a GPU counts the host's memory apart, in powers of two") {
  const at::Tensor tensor = at::empty({300, 10}, at::TensorOptions(at::kFloat).device(at::kMeta));
  HostTransfers transfers(at::kMeta);
  {
    ops::DryRun run({.device = at::kCUDA});
    {
      const at::Tensor host = transfers.to_host(tensor).to;
      CHECK(host.sizes() == tensor.sizes());
      CHECK(run.now().total() == 0);
      const at::Tensor back = transfers.to_device(host).to;
      CHECK(run.now().total() == 12288);  // in multiples of 512
    }
    CHECK(run.now().total() == 0);
    CHECK(run.host_peak() == 16384);
    CHECK(run.host_bytes() == 12000);
    { const at::Tensor again = transfers.to_host(tensor).to; }
    CHECK(run.host_peak() == 16384);
    CHECK(run.host_bytes() == 24000);
  }
  ops::DryRun run({});
  const at::Tensor host = transfers.to_host(tensor).to;
  CHECK(run.now().total() == 12000);
  CHECK(run.host_peak() == 0);
}

TEST_CASE("blocks of pinned memory are whole powers of two") {
  CHECK(ops::host_memory_bytes(0, at::kCUDA) == 0);
  CHECK(ops::host_memory_bytes(4096, at::kCUDA) == 4096);
  CHECK(ops::host_memory_bytes(4097, at::kCUDA) == 8192);
  CHECK(ops::host_memory_bytes(4097, at::kCPU) == 4097);
}
