#include "comm/stream_order.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <map>
#include <set>
#include <string>

#include "support/catch.h"

using lorikeet::comm::StreamOrder;

namespace {

// A made-up device whose streams know what they run after: the names of all work that precedes their next.
using Before = std::set<std::string>;
std::map<c10::StreamId, Before> g_streams;
c10::StreamId g_current = 0;
c10::StreamId g_newest = 0;

struct MadeUpDevice final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

  c10::DeviceType type() const override { return kType; }
  c10::Device getDevice() const override { return {kType, 0}; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, 0), id);
  }
  c10::Stream getStream(c10::Device) const override { return stream(g_current); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(++g_newest); }
  c10::Stream exchangeStream(c10::Stream to) const override {
    return stream(std::exchange(g_current, to.id()));
  }
  void record(void** event, const c10::Stream& from, c10::DeviceIndex, c10::EventFlag) const override {
    *event = new Before(g_streams[from.id()]);
  }
  void block(void* event, const c10::Stream& to) const override {
    g_streams[to.id()].merge(Before(*static_cast<Before*>(event)));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Before*>(event);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, MadeUpDevice);

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);

// A group as ProcessGroupNCCL is one: its collectives run on a stream of its own, after what the current
// stream had at their issue.
struct Group {
  c10::StreamId stream = ++g_newest;

  StreamOrder::Wait issue(const std::string& name) {
    g_streams[stream].merge(Before(g_streams[g_current]));
    before = g_streams[stream];
    g_streams[stream].insert(name);
    return [done = g_streams[stream]] { g_streams[g_current].merge(Before(done)); };
  }

  Before before;  // what the latest collective runs after
};

}  // namespace

TEST_CASE("two groups' collectives run in the order of their issue, and the compute stream waits for none") {
  g_streams.clear();
  Group sharers, all;
  StreamOrder order;
  g_streams[0] = {"layer 2"};
  const auto gather = order.start(kDevice, [&] { return sharers.issue("gather 1"); });
  g_streams[0].insert("layer 1");
  const auto reduce = order.start(kDevice, [&] { return all.issue("reduce 2"); });
  CHECK(all.before == Before{"layer 2", "layer 1", "gather 1"});
  order.start(kDevice, [&] { return sharers.issue("gather 3"); });
  CHECK(sharers.before == Before{"layer 2", "layer 1", "gather 1", "reduce 2"});
  CHECK(g_current == 0);
  CHECK(g_streams[0] == Before{"layer 2", "layer 1"});
  gather();
  CHECK(g_streams[0] == Before{"layer 2", "layer 1", "gather 1"});
  reduce();
  CHECK(g_streams[0].contains("reduce 2"));
}

TEST_CASE("without the order the second group's collective does not wait for the first one's") {
  g_streams.clear();
  Group sharers, all;
  sharers.issue("gather 1");
  all.issue("reduce 2");
  CHECK_FALSE(all.before.contains("gather 1"));
}
