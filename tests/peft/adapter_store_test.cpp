#include "peft/adapter_store.h"

#include <ATen/ATen.h>

#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::peft;

TEST_CASE("groups lie in the reverse order of forward, each in its own order") {
  AdapterStore store(precision::Policy{});
  CHECK(store.declare({{"first.a", {2, 3}}, {"first.b", {4, 2}}}) == 0);
  CHECK(store.declare({{"second.a", {5}}}) == 2);
  CHECK(store.declare({{"third.a", {2, 2}}, {"third.b", {3}}}) == 3);
  store.allocate(at::kCPU);
  CHECK(store.numel() == 6 + 8 + 5 + 4 + 3);
  CHECK(store.segment(3).offset == 0);  // third.a
  CHECK(store.segment(4).offset == 4);  // third.b
  CHECK(store.segment(2).offset == 7);  // second.a
  CHECK(store.segment(0).offset == 12);
  CHECK(store.segment(1).offset == 18);
}

TEST_CASE("frozen segments lie behind all others and have no gradient") {
  AdapterStore store(precision::Policy{});
  store.declare({{.name = "first.a", .shape = {2, 3}, .frozen = true}, {.name = "first.b", .shape = {4}}});
  store.declare({{.name = "second.a", .shape = {5}, .frozen = true}, {.name = "second.b", .shape = {2, 2}}});
  store.allocate(at::kCPU);
  CHECK(store.numel() == 8);
  CHECK(store.values().numel() == 8);
  CHECK(store.gradients().numel() == 8);
  CHECK(store.all_values().numel() == 8 + 11);
  CHECK(store.segment(3).offset == 0);
  CHECK(store.segment(1).offset == 4);
  CHECK(store.segment(2).offset == 8);
  CHECK(store.segment(0).offset == 13);
  CHECK_FALSE(store.gradient(0).defined());
  CHECK(store.gradient(1).sizes() == at::IntArrayRef({4}));
  store.value(0).fill_(1.001);
  CHECK(store.values().count_nonzero().item<std::int64_t>() == 0);
  store.refresh_compute();
  CHECK(at::equal(store.compute(0), store.value(0).to(at::kBFloat16)));
}

TEST_CASE("each refresh of the compute copy has a number of its own") {
  AdapterStore store(precision::Policy{});
  store.declare({{"a", {2}}});
  store.allocate(at::kCPU);
  const std::uint64_t before = store.version();
  store.refresh_compute();
  CHECK(store.version() != before);
}

TEST_CASE("segments are views of the flat buffers") {
  AdapterStore store(precision::Policy{});
  store.declare({{"a", {2, 3}}, {"b", {4}}});
  store.allocate(at::kCPU);
  CHECK(store.values().count_nonzero().item<std::int64_t>() == 0);
  CHECK(store.gradients().count_nonzero().item<std::int64_t>() == 0);
  store.value(1).fill_(2);
  store.gradient(0).fill_(3);
  CHECK(store.values().sum().item<double>() == 8);
  CHECK(store.gradients().sum().item<double>() == 18);
  CHECK(store.value(0).sizes() == at::IntArrayRef({2, 3}));
}

TEST_CASE("operators read a copy in the compute dtype, which follows when it is refreshed") {
  AdapterStore store(precision::Policy{});
  store.declare({{"a", {2}}});
  store.allocate(at::kCPU);
  store.values().fill_(1.001);  // not a bf16 number
  CHECK(store.compute(0).scalar_type() == at::kBFloat16);
  CHECK(store.compute(0)[0].item<double>() == 0);
  store.refresh_compute();
  CHECK(at::equal(store.compute(0), store.value(0).to(at::kBFloat16)));
}

TEST_CASE("there is no second copy where adapter and compute dtype are the same") {
  AdapterStore store({.compute = DType::kF32});
  store.declare({{"a", {2}}});
  store.allocate(at::kCPU);
  store.values().fill_(1.001);
  CHECK(at::equal(store.compute(0), store.value(0)));
  CHECK(store.compute(0).data_ptr() == store.value(0).data_ptr());
}

TEST_CASE("a store that is allocated takes no further tensors") {
  AdapterStore store(precision::Policy{});
  store.declare({{"a", {2}}});
  store.allocate(at::kCPU);
  CHECK_THROWS(store.declare({{"late", {2}}}));
}
