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

TEST_CASE("NCCL_ALGO is a note, and a warning where nothing that it allows works here") {
  Sources sources = machine(2);
  const auto with = [&](const char* value) {
    set(sources, "NCCL_ALGO", value);
    return only(sources, "NCCL_ALGO");
  };
  CHECK_THAT(with("Ring"), StartsWith("note: NCCL_ALGO=Ring overrules"));
  CHECK_THAT(with("^Tree"), StartsWith("note: "));
  CHECK_THAT(with("NVLS"), StartsWith("warning: ") && Contains("NVSwitch"));
  CHECK_THAT(with("nvls,ring"), StartsWith("note: "));
  CHECK_THAT(with("CollNetDirect"), StartsWith("warning: ") && Contains("one machine"));
  sources.needs.nodes = 4;
  CHECK_THAT(with("CollNetDirect"), StartsWith("note: "));
  for (device::GpuInfo& gpu : sources.gpus.inventory.gpus)
    gpu.nvlinks = {{.link = 0, .peer = device::NvLink::Peer::kSwitch}};
  CHECK_THAT(with("NVLS"), StartsWith("note: "));
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
