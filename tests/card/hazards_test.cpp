// Each kind of hazard is provoked and found: without this the runs on the fake card could not fail.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "card/host_kernel.h"
#include "card/memory.h"
#include "card/report.h"
#include "ops/lora/dropout.h"
#include "ops/lora/dropout_mask.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

const at::Device kFirst("cuda:0"), kSecond("cuda:1");

// The hazards counted while it lives.
class Hazards {
 public:
  Hazards() { card::reset_report(); }
  static std::int64_t count(const std::string& part) {
    std::int64_t sum = 0;
    for (const auto& [what, times] : card::report().hazards)
      sum += what.find(part) == std::string::npos ? 0 : times;
    return sum;
  }
  static bool none() { return card::report().hazards.empty(); }
};

at::Tensor pinned(at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions().pinned_memory(true)).fill_(1);
}

c10::Stream new_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(device, 0);
}
c10::Stream current_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device);
}

struct DropoutArguments {
  explicit DropoutArguments(const at::Device& device)
      : x(at::ones({4, 8}).to(device)), out(at::empty_like(x)), ids(at::zeros({4}, at::kLong).to(device)) {}
  void launch(void* stream) const { launch(stream, x.data_ptr()); }
  void launch(void* stream, const void* input) const {
    ops::launch_dropout(ops::CudaElement::kF32, input, out.data_ptr(), 4, 8, ids.data_ptr<std::int64_t>(),
                        ids.data_ptr<std::int64_t>(), ops::dropout_key(1, 1, 1, 0.5), stream);
  }
  at::Tensor x, out, ids;
};

}  // namespace

TEST_CASE("operators on a card give the CPU's results") {
  const Hazards hazards;
  const at::Tensor a = at::randn({8, 16}), b = at::randn({16, 4});
  for (const auto& device : {kFirst, kSecond}) {
    const at::Tensor on_card = at::mm(a.to(device), b.to(device)).add(1);
    CHECK(on_card.is_cuda());
    CHECK(on_card.device() == device);
    CHECK(at::equal(on_card.cpu(), at::mm(a, b) + 1));
    CHECK(at::arange(3, at::TensorOptions(device)).device() == device);
  }
  CHECK(hazards.none());
}

TEST_CASE("a host that touches card memory dies, and says where") {
  const at::Tensor on_card = at::ones({4}).to(kFirst);
  std::array<int, 2> pipe_ends{};
  REQUIRE(pipe(pipe_ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDERR_FILENO);
    card::report_host_access();  // Catch has taken the signal
    _exit(static_cast<int>(*static_cast<volatile float*>(on_card.data_ptr())));
  }
  close(pipe_ends[1]);
  std::string said(4096, '\0');
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(read(pipe_ends[0], said.data(), said.size()), 0)));
  close(pipe_ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
  CHECK(said.find("the host touched card memory") != std::string::npos);
}

TEST_CASE("tensors of several devices in one call are refused") {
  const at::Tensor host = at::ones({4, 4}), first = host.to(kFirst), second = host.to(kSecond);
  CHECK_THROWS_WITH(at::mm(first, host), Catch::Contains("got a CPU tensor"));
  CHECK_THROWS_WITH(at::mm(first, second), Catch::Contains("got cuda:0 and cuda:1"));
  CHECK_THROWS_WITH(first.add(second), Catch::Contains("on the same device"));  // libtorch's own check
  CHECK_NOTHROW(first.add(at::ones({})));  // a number travels with the launch
}

TEST_CASE("a kernel launched while another card is current is found, and dropout sets its card") {
  const DropoutArguments arguments(kSecond);
  const Hazards hazards;
  arguments.launch(nullptr);
  CHECK(hazards.count("while another card than its memory's is current") == 4);

  card::reset_report();
  const ops::LoraDropout dropout{
      .p = 0.5, .seed = 1, .step = 1, .group = 1, .sample_ids = arguments.ids, .position_ids = arguments.ids};
  const at::Tensor dropped = ops::apply_dropout(arguments.x, dropout);
  CHECK(hazards.none());
  CHECK(card::report().kernels.at("dropout_mask.cu") == 1);
  const at::Tensor ids = arguments.ids.cpu();
  CHECK(at::equal(dropped.cpu(), ops::apply_dropout(at::ones({4, 8}), {0.5, 1, 1, 1, ids, ids})));
}

TEST_CASE("a kernel on another stream than the current one is found") {
  const DropoutArguments arguments(kFirst);
  const Hazards hazards;
  const c10::Stream other = new_stream(kFirst);
  arguments.launch(other.native_handle());
  CHECK(hazards.count("on another stream than the current one") == 1);
  CHECK(hazards.count("uses what another stream wrote") > 0);
}

TEST_CASE("a kernel that is given an address of the host is found") {
  const DropoutArguments arguments(kFirst);
  const Hazards hazards;
  const at::Tensor host = at::ones({4, 8});
  arguments.launch(nullptr, host.data_ptr());
  CHECK(hazards.count("no allocated card memory") == 1);
}

TEST_CASE("a launch of more blocks or threads than a card takes is refused") {
  const auto launch = [](const dim3& grid, const dim3& block) {
    std::int64_t threads = 0;
    card::run_kernel(grid, block, 0, nullptr, "test.cu", card::Threads::kAlone, [&] { ++threads; });
    return threads;
  };
  CHECK(launch({2, 3}, {4, 5, 6}) == 720);
  CHECK_THROWS_WITH(launch({1, 65536}, {1}), Catch::Contains("invalid configuration argument"));
  CHECK_THROWS_WITH(launch({1}, {1025}),
                    Catch::Contains("got a grid of 1 x 1 x 1 blocks of 1025 x 1 x 1 threads"));
  CHECK_THROWS_AS(launch({0}, {1}), Error);
}

TEST_CASE("an asynchronous copy from memory that isn't pinned is found") {
  const Hazards hazards;
  (void)at::ones({4}).to(kFirst, /*non_blocking=*/true);
  CHECK(hazards.count("its host memory isn't pinned") == 1);
  CHECK(card::report().waits.at("copy to the card") == 1);
  card::reset_report();
  (void)pinned({4}).to(kFirst, /*non_blocking=*/true);
  CHECK(hazards.none());
  CHECK(card::report().waits.empty());
}

TEST_CASE("pinned memory that is changed before its copy is waited for is found") {
  const Hazards hazards;
  const at::Tensor host = pinned({4});
  const at::Tensor on_card = host.to(kFirst, /*non_blocking=*/true);
  host.zero_();
  CHECK(hazards.none());
  at::accelerator::synchronizeDevice(0);
  CHECK(hazards.count("was changed before its copy to the card") == 1);

  card::reset_report();
  const at::Tensor again = host.to(kFirst, /*non_blocking=*/true);
  at::accelerator::synchronizeDevice(0);
  host.fill_(2);
  at::accelerator::synchronizeDevice(0);
  CHECK(hazards.none());
}

TEST_CASE("what the card copies to the host isn't there before somebody waits") {
  const at::Tensor on_card = at::full({4}, 3.0F).to(kSecond);
  const Hazards hazards;
  at::Tensor host = pinned({4});
  host.copy_(on_card, /*non_blocking=*/true);
  CHECK(host.isnan().all().item<bool>());
  SECTION("a wait for the stream brings it") { current_stream(kSecond).synchronize(); }
  SECTION("a wait for an event behind it brings it") {
    c10::Event event(at::kCUDA);
    event.record(current_stream(kSecond));
    event.synchronize();
  }
  CHECK(host.eq(3).all().item<bool>());
  CHECK(hazards.none());
}

TEST_CASE("an event before a copy, or a wait for another stream, doesn't bring what it copies") {
  const at::Tensor on_card = at::full({4}, 3.0F).to(kFirst);
  c10::Event early(at::kCUDA);
  early.record(current_stream(kFirst));
  at::Tensor host = pinned({4});
  host.copy_(on_card, /*non_blocking=*/true);
  early.synchronize();
  new_stream(kFirst).synchronize();
  CHECK(host.isnan().all().item<bool>());
  host.fill_(1);
  const Hazards hazards;
  at::accelerator::synchronizeDevice(0);
  CHECK(hazards.count("was changed before the copy from the card") == 1);
}

TEST_CASE("pinned memory that is freed while the card copies to it is found") {
  const Hazards hazards;
  at::Tensor host = pinned({4});
  host.copy_(at::ones({4}).to(kFirst), /*non_blocking=*/true);
  host.reset();
  CHECK(hazards.count("was freed before the copy from the card") == 1);
}

TEST_CASE("memory of the host goes back to the card behind the copy that filled it") {
  const c10::Stream first = current_stream(kFirst), second = new_stream(kFirst);
  at::Tensor host = pinned({4});
  const Hazards hazards;
  host.copy_(at::full({4}, 3.0F).to(kFirst), /*non_blocking=*/true);
  at::Tensor back;
  SECTION("on the same stream") { back = host.to(kFirst, /*non_blocking=*/true); }
  SECTION("on one that an event orders") {
    c10::Event event(at::kCUDA);
    event.record(first);
    event.block(second);
    const c10::StreamGuard guard(second);
    back = host.to(kFirst, /*non_blocking=*/true);
  }
  CHECK(hazards.count("before the copy from the card to it was done") == 0);
  at::accelerator::synchronizeDevice(0);
  CHECK(back.cpu().eq(3).all().item<bool>());
}

TEST_CASE("memory of the host that goes to the card before it is filled is found") {
  const c10::Stream second = new_stream(kFirst);
  at::Tensor host = pinned({4});
  host.copy_(at::full({4}, 3.0F).to(kFirst), /*non_blocking=*/true);
  const Hazards hazards;
  const c10::StreamGuard guard(second);
  (void)host.to(kFirst, /*non_blocking=*/true);
  CHECK(hazards.count("before the copy from the card to it was done") == 1);
  at::accelerator::synchronizeDevice(0);
}

TEST_CASE("work on two streams that no event orders is found") {
  const c10::Stream first = current_stream(kFirst), second = new_stream(kFirst);
  const at::Tensor written = at::ones({4}).to(kFirst);
  const Hazards hazards;
  SECTION("a read of what the other stream wrote") {
    const c10::StreamGuard guard(second);
    (void)written.add(1);
    CHECK(hazards.count("uses what another stream wrote") == 1);
  }
  SECTION("a write to what the other stream reads") {
    c10::Event event(at::kCUDA);
    event.record(first);
    (void)written.add(1);  // after the event
    event.block(second);
    const c10::StreamGuard guard(second);
    written.zero_();
    CHECK(hazards.count("overwrites what another stream reads") == 1);
  }
  SECTION("with an event between them all is right") {
    (void)written.add(1);
    c10::Event event(at::kCUDA);
    event.record(first);
    event.block(second);
    const c10::StreamGuard guard(second);
    written.zero_();
    CHECK(hazards.none());
  }
}

TEST_CASE("uninitialised and freed memory is NaN, and a write to freed memory is found") {
  constexpr std::int64_t kSize = 77777;  // that no other block has
  const Hazards hazards;
  at::Tensor tensor = at::empty(kSize, at::TensorOptions(kFirst));
  CHECK(tensor.isnan().all().item<bool>());
  tensor.zero_();
  void* data = card::on_card(tensor.data_ptr());
  tensor.reset();
  float value = 0;
  std::memcpy(&value, data, sizeof value);
  CHECK(std::isnan(value));
  std::memset(data, 0, sizeof value);
  tensor = at::empty(kSize, at::TensorOptions(kFirst));
  CHECK(hazards.count("written after it had been freed") == 1);
  CHECK(tensor.isnan().all().item<bool>());
}

TEST_CASE("waits are counted by their cause") {
  const at::Tensor on_card = at::ones({4}).to(kFirst);
  card::reset_report();
  const auto& waits = card::report().waits;
  (void)on_card.sum().item<float>();
  CHECK(waits.at("item") == 1);
  (void)on_card.nonzero();
  CHECK(waits.at("aten::nonzero") == 1);
  (void)on_card.cpu();
  CHECK(waits.at("copy to the host") == 1);
  (void)at::ones({4}).to(kFirst);
  CHECK(waits.at("copy to the card") == 1);
  at::accelerator::synchronizeDevice(0);
  CHECK(waits.at("synchronizeDevice") + waits.size() == 6);
  CHECK(card::report().hazards.empty());
}

TEST_CASE("a wait for less than all that was launched leaves the card busy") {
  const auto pinned = [] { return at::empty({1}, at::TensorOptions().pinned_memory(true)); };
  const at::Tensor on_card = at::ones({1}).to(kFirst), first = pinned();
  c10::Event event(at::kCUDA);
  const auto record = [&] { event.record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(kFirst)); };
  card::reset_report();
  first.copy_(on_card, /*non_blocking=*/true);
  record();
  on_card.add_(1);
  (void)on_card.view({1, 1});
  event.synchronize();
  CHECK(card::report().waits.at("synchronizeEvent") == 1);
  CHECK(card::report().idle_waits == 0);
  CHECK(first.item<float>() == 1);
  record();
  event.synchronize();
  CHECK(card::report().idle_waits == 1);
  (void)on_card.item<float>();
  CHECK(card::report().idle_waits == 2);
}

TEST_CASE("indices on the host are found") {
  const Hazards hazards;
  (void)at::ones({4}).to(kFirst).index({at::arange(2, at::kLong)});
  CHECK(hazards.count("indices on the host") == 1);
}

// Its ctest entry gives a card 64 MiB.
TEST_CASE("a card refuses more than its memory, and tells its peak") {
  const at::TensorOptions bytes = at::TensorOptions(kSecond).dtype(at::kByte);
  constexpr std::int64_t kMiB = 1 << 20;
  at::accelerator::resetPeakStats(1);
  CHECK_THROWS_AS(at::empty({65 * kMiB}, bytes), c10::OutOfMemoryError);
  (void)at::empty({40 * kMiB}, bytes);
  CHECK_NOTHROW(at::empty({50 * kMiB}, bytes));  // freed memory is given out again
  constexpr auto kPeak = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  CHECK(at::accelerator::getDeviceStats(1).allocated_bytes[kPeak].peak == 50 * kMiB);
}

TEST_CASE("FlashAttention refuses what the card's kernels refuse") {
  const at::Tensor ends = at::tensor({0, 4}, at::kInt);
  const auto attend = [&](const at::Tensor& rows, const at::Tensor& bounds) {
    return std::get<0>(
        at::_flash_attention_forward(rows, rows, rows, bounds, bounds, 4, 4, 0.0, true, false));
  };
  const at::Tensor rows = at::ones({4, 2, 16}).to(kFirst);
  const at::Tensor half = rows.to(at::kBFloat16);
  CHECK_THROWS_WITH(attend(rows, ends.to(kFirst)), Catch::Contains("only supports fp16 and bf16"));
  CHECK_THROWS_WITH(attend(half.slice(2, 0, 12), ends.to(kFirst)), Catch::Contains("a multiple of 8"));
  CHECK_THROWS_WITH(attend(half, ends), Catch::Contains("cu_seqlens as int32 on the card"));
  CHECK(at::allclose(attend(half, ends.to(kFirst)).cpu(), half.cpu()));  // equal values mix to themselves
}

TEST_CASE("the report is JSON with every counter") {
  card::Report report;
  report.hazards["a \"quoted\" one"] = 2;
  report.uploads = 3;
  report.contexts = {1, 0};
  CHECK(
      card::to_json(report) ==
      R"({"operators": {}, "kernels": {}, "waits": {}, "hazards": {"a \"quoted\" one": 2}, "contexts": [0, 1], "uploads": 3, )"
      R"("pinned_uploads": 0, "downloads": 0, "pinned_downloads": 0, "allocations": 0, "idle_waits": 0, "launches": 0, "graph_launches": 0})");
}
