#include "probe/machine.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;
using Catch::StartsWith;
using test::add_infiniband;
using test::machine;
using test::only;
using test::port;
using test::set;

TEST_CASE("NCCL_SOCKET_IFNAME that chooses no interface is unfit, one that names some in vain a warning") {
  Sources sources = machine(2);
  const auto with = [&](const char* value) {
    set(sources, "NCCL_SOCKET_IFNAME", value);
    return only(sources, "NCCL_SOCKET_IFNAME");
  };
  CHECK_THAT(with("eth"), StartsWith("ok: NCCL_SOCKET_IFNAME=eth chooses eth0"));
  CHECK_THAT(with("=eth"), StartsWith("unfit: ") && Contains("or name one of: eth0, ib0, lo"));
  CHECK_THAT(with("=eth0"), StartsWith("ok: "));
  CHECK_THAT(with("ens3"), StartsWith("unfit: "));
  CHECK_THAT(with("ens3,eth0"), StartsWith("warning: ") && Contains("names 'ens3'"));
  CHECK_THAT(with("^docker,lo"), StartsWith("ok: ") && Contains("eth0, ib0"));
  CHECK_THAT(with("^eth,ib,lo"), StartsWith("unfit: "));
  (*sources.network.interfaces)[0].up = false;
  CHECK_THAT(with("eth0"), StartsWith("unfit: ") && Contains("eth0 (down)"));
  sources.network.interfaces.reset();
  CHECK_THAT(with("ens3"), StartsWith("ok: "));  // nothing to hold it against
}

TEST_CASE("loopback reaches the ranks of one machine and no others") {
  Sources sources = machine(2);
  set(sources, "NCCL_SOCKET_IFNAME", "=lo");
  CHECK_THAT(only(sources, "NCCL_SOCKET_IFNAME"), StartsWith("ok: "));
  sources.needs.nodes = 2;
  CHECK_THAT(only(sources, "NCCL_SOCKET_IFNAME"),
             StartsWith("unfit: ") && Contains("no other machine reaches"));
}

TEST_CASE("InfiniBand that is there and can't be used is a warning for each reason") {
  Sources sources = machine(2);
  CHECK_THAT(only(sources, "InfiniBand"), StartsWith("ok: this machine has no adapter"));
  add_infiniband(sources);
  CHECK_THAT(only(sources, "InfiniBand"), StartsWith("ok: active and usable: mlx5_0:1, mlx5_1:1"));
  sources.network.locked_memory_bytes = 64 << 10;
  CHECK_THAT(only(sources, "InfiniBand"), StartsWith("warning: ") && Contains("lock only 64.0 KiB"));
  sources.network.verbs_devices = sources.network.verbs_library = false;
  set(sources, "NCCL_NET", "Socket");
  const Findings found = test::said(sources, "InfiniBand");
  CHECK(found.size() == 4);
  CHECK(worst(found) == Severity::kWarning);
  sources.needs.nodes = 1;
  CHECK(worst(test::said(sources, "InfiniBand")) == Severity::kOk);
}

TEST_CASE("InfiniBand without an active port is a warning for a run on several machines") {
  Sources sources = machine(2);
  add_infiniband(sources);
  sources.network.fabric[0].active = false;
  CHECK_THAT(only(sources, "InfiniBand"), StartsWith("note: not active: mlx5_0:1"));
  sources.network.fabric[1].active = false;
  CHECK_THAT(only(sources, "InfiniBand"), StartsWith("note: no port is active"));
  sources.needs.nodes = 2;
  CHECK_THAT(only(sources, "InfiniBand"), StartsWith("warning: no port is active (mlx5_0:1, mlx5_1:1)"));
}

TEST_CASE("NCCL_IB_DISABLE is judged by what is there") {
  Sources sources = machine(2);
  set(sources, "NCCL_IB_DISABLE", "1");
  CHECK_THAT(only(sources, "NCCL_IB_DISABLE"), StartsWith("note: ") && Contains("no adapter here is active"));
  add_infiniband(sources);
  CHECK_THAT(
      only(sources, "NCCL_IB_DISABLE"),
      StartsWith("warning: NCCL_IB_DISABLE=1: InfiniBand is active") && Contains("[unset NCCL_IB_DISABLE]"));
  sources.needs.nodes = 1;
  CHECK_THAT(only(sources, "NCCL_IB_DISABLE"), StartsWith("note: ") && Contains("one machine"));
  sources.needs.nodes = 2;
  sources.network.fabric = {port("mlx5_0", /*infiniband=*/false)};
  CHECK_THAT(only(sources, "NCCL_IB_DISABLE"), StartsWith("note: ") && Contains("RoCE"));
}

TEST_CASE("NCCL_IB_HCA that names adapters in vain is a warning") {
  Sources sources = machine(2);
  const auto with = [&](const char* value) {
    set(sources, "NCCL_IB_HCA", value);
    return only(sources, "NCCL_IB_HCA");
  };
  CHECK_THAT(with("mlx5"), StartsWith("note: ") && Contains("no adapter"));
  add_infiniband(sources);
  for (const char* good : {"mlx5", "mlx5_0", "=mlx5_0:1", "^mlx5_1", "mlx5_0:1,mlx5_1:1"})
    CHECK_THAT(with(good), StartsWith("ok: "));
  CHECK_THAT(with("mlx4_0"), StartsWith("warning: ") && Contains("or name some of: mlx5_0:1, mlx5_1:1"));
  CHECK_THAT(with("=mlx5"), StartsWith("warning: "));
  CHECK_THAT(with("mlx5_0:2"), StartsWith("warning: "));
  CHECK_THAT(with("^mlx5"), StartsWith("warning: "));
  CHECK_THAT(with("mlx5_0,mlx5_7"), StartsWith("warning: ") && Contains("names 'mlx5_7'"));
  sources.network.fabric[0].active = false;
  CHECK_THAT(with("mlx5_0"), StartsWith("warning: ") && Contains("no active port"));
  sources.needs.nodes = 1;
  CHECK_THAT(with("mlx5_0"), StartsWith("note: "));
}

TEST_CASE("EFA needs NCCL's plugin, and not the verbs library") {
  Sources sources = machine(2);
  sources.needs.nodes = 2;
  sources.network.fabric = {port("rdmap0s6", /*infiniband=*/false)};
  sources.network.fabric[0].driver = "efa";
  sources.network.fabric[0].verbs = false;
  CHECK_THAT(only(sources, "InfiniBand"), StartsWith("warning: EFA is active") && Contains("aws-ofi-nccl"));
  set(sources, "NCCL_IB_DISABLE", "1");
  CHECK_THAT(only(sources, "NCCL_IB_DISABLE"), StartsWith("note: ") && Contains("changes nothing"));
  sources.network.net_plugin = true;
  CHECK_THAT(only(sources, "InfiniBand"), StartsWith("ok: active and usable"));
}

TEST_CASE("NCCL_IB_DISABLE that is no number has no effect") {
  Sources sources = machine(2);
  add_infiniband(sources);
  set(sources, "NCCL_IB_DISABLE", "true");
  CHECK_THAT(only(sources, "NCCL_IB_DISABLE"), StartsWith("warning: ") && Contains("has no effect"));
}

TEST_CASE("FI_PROVIDER=efa without an EFA adapter is a warning") {
  Sources sources = machine(2);
  set(sources, "FI_PROVIDER", "tcp");
  CHECK_THAT(only(sources, "FI_PROVIDER"), StartsWith("ok: "));
  set(sources, "FI_PROVIDER", "efa");
  CHECK_THAT(only(sources, "FI_PROVIDER"), StartsWith("warning: ") && Contains("[unset FI_PROVIDER]"));
  sources.network.fabric = {port("rdmap0s6", /*infiniband=*/false)};
  sources.network.fabric[0].driver = "efa";
  CHECK_THAT(only(sources, "FI_PROVIDER"), StartsWith("ok: "));
}
