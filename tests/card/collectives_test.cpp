// Collectives on a card work on a stream of their own: who uses their tensors before wait() is found.
#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "card/report.h"
#include "comm/communicator.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

const at::Device kSecond("cuda:1");

std::unique_ptr<comm::Communicator> group_of_one() {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  return comm::Communicator::join(store, /*rank=*/0, /*size=*/1, kSecond, {});
}

std::int64_t hazards() {
  std::int64_t sum = 0;
  for (const auto& [what, count] : card::report().hazards) sum += count;
  return sum;
}

}  // namespace

TEST_CASE("a tensor that is read while a collective is under way on it is found") {
  const auto group = group_of_one();
  const at::Tensor tensor = at::ones({4}).to(kSecond);
  card::reset_report();
  comm::Pending pending = group->all_reduce(tensor);
  (void)tensor.add(1);
  CHECK(hazards() == 1);
  pending.wait();
  (void)tensor.add(1);
  CHECK(hazards() == 1);
  CHECK(at::equal(tensor.cpu(), at::ones({4})));
}

TEST_CASE("a collective's input that is written before it was waited for is found") {
  const auto group = group_of_one();
  const at::Tensor in = at::ones({4}).to(kSecond), out = at::zeros({4}).to(kSecond);
  card::reset_report();
  comm::Pending pending = group->all_gather(out, in);
  in.zero_();
  CHECK(hazards() == 1);
  pending.wait();  // what is in `out` depends on who was first
  CHECK(hazards() == 1);
}

TEST_CASE("collectives that are waited for in order are right") {
  const auto group = group_of_one();
  const at::Tensor tensor = at::ones({4}).to(kSecond);
  card::reset_report();
  group->broadcast(tensor, 0).wait();
  tensor.mul_(3);
  group->all_reduce(tensor).wait();
  CHECK(at::equal(tensor.cpu(), at::full({4}, 3.0F)));
  CHECK(hazards() == 0);
}
