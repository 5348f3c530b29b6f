#include "probe/machine.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;
using Catch::StartsWith;
using test::link_all;
using test::machine;
using test::only;
using test::set;

TEST_CASE("NCCL_ALGO is a note, and unfit where it forbids what broadcasts and gathers need") {
  Sources sources = machine(2);
  const auto with = [&](const char* value) {
    set(sources, "NCCL_ALGO", value);
    return only(sources, "NCCL_ALGO");
  };
  CHECK_THAT(with("Ring"), StartsWith("note: NCCL_ALGO=Ring overrules"));
  for (const char* fine : {"^Tree", "nvls,ring", "allreduce:tree", "allreduce:^ring;broadcast:ring"}) {
    INFO(fine);
    CHECK_THAT(with(fine), StartsWith("note: "));
  }
  CHECK(with("Tree") ==
        "unfit: NCCL_ALGO=Tree forbids Ring, without which NCCL can't broadcast: the run fails at its first "
        "step "
        "[unset NCCL_ALGO]");
  for (const char* bad : {"^Ring", "NVLS", "CollNetDirect", "^tree,RING", "broadcast:tree;allreduce:ring"}) {
    INFO(bad);
    CHECK_THAT(with(bad), StartsWith("unfit: ") && Contains("can't broadcast"));
  }
  CHECK_THAT(with("allgather:tree"), StartsWith("unfit: ") && Contains("can't gather"));
}

TEST_CASE("NCCL_PROTO with LL128 is a warning where NVLink doesn't join all") {
  Sources sources = machine(2);
  const auto with = [&](const char* value) {
    set(sources, "NCCL_PROTO", value);
    return only(sources, "NCCL_PROTO");
  };
  CHECK_THAT(with("LL128,Simple"), StartsWith("warning: ") && Contains("silently be wrong"));
  CHECK_THAT(with("^LL128"), StartsWith("note: "));
  CHECK_THAT(with("Simple"), StartsWith("note: "));
  CHECK_THAT(with("LL"), StartsWith("warning: ") && Contains("leaves out Simple"));
  link_all(sources, {device::LinkKind::kNvLink, 12, true});
  CHECK_THAT(with("LL128,Simple"), StartsWith("note: "));
  sources.needs.nodes = 2;
  CHECK_THAT(with("LL128,Simple"), StartsWith("warning: "));
}

TEST_CASE("NCCL_DEBUG is a note at INFO and a warning at TRACE") {
  Sources sources = machine(2);
  set(sources, "NCCL_DEBUG", "WARN");
  CHECK_THAT(only(sources, "NCCL_DEBUG"), StartsWith("ok: "));
  set(sources, "NCCL_DEBUG", "info");
  CHECK_THAT(only(sources, "NCCL_DEBUG"), StartsWith("note: "));
  set(sources, "NCCL_DEBUG", "TRACE");
  CHECK_THAT(only(sources, "NCCL_DEBUG"), StartsWith("warning: ") && Contains("[export NCCL_DEBUG=WARN]"));
}
