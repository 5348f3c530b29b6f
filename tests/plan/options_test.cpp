#include "plan/options.h"

#include "plan/decision.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::plan;
using Catch::Contains;

namespace {

constexpr std::int64_t kGB = 1'000'000'000;

constexpr config::MemorySaving kNone{};
constexpr config::MemorySaving kFull{.checkpointing = config::ActivationCheckpointing::kFull};

// A base of 16 GB and 1 GB for the adapter, a GB for 1,000 tokens, half of that with mlp, a quarter with
// full; what is offloaded takes a tenth.
Job job() {
  Work work{.tokens = 8000,
            .flops = 8e14,
            .recomputed_flops = 3e14,
            .recomputed_mlp_flops = 1e14,
            .gradient_bytes = 1e8,
            .frozen_bytes = 16e9,
            .streamed_bytes = 32e9};
  work.uses = {{4e9, 0}, {0, 0.2}, {4e9, 0.2}, {4e9, 0.2}, {0, 0.2}, {4e9, 0.2}};
  return {.work = work,
          .memory =
              [](const Choice& choice) {
                const config::MemorySaving& saving = choice.saving;
                MemoryEstimate memory{.weights = 16 * kGB / choice.degree, .adapter = kGB};
                const std::int64_t kept =
                    choice.micro_tokens * (kGB / 1000) / (1 << static_cast<int>(saving.checkpointing));
                memory.activations = saving.offload.activations ? kept / 10 : kept;
                if (saving.offload.activations) memory.moved_activations = kept;
                if (saving.offload.weights) memory.weights /= 10;
                memory.tokens = choice.micro_tokens;
                return memory;
              },
          .spread =
              [](int devices, std::int64_t micro) {
                return Spread{std::max(1.0, 8000.0 / static_cast<double>(micro) / devices), 1.0 / devices};
              }};
}

Machine machine(std::int64_t memory_gb, double bandwidth) {
  return {.device = "a card",
          .memory_bytes = memory_gb * kGB,
          .flops_per_second = 1e14,
          .link = [bandwidth](int) { return Link{bandwidth, 0}; }};
}

const Range kRange{.devices = {1, 2, 4},
                   .micro_tokens = {1000, 2000, 4000},
                   .checkpointing = {kNone.checkpointing, kFull.checkpointing}};

bool any(const Option&) { return true; }

const Option& find(const std::vector<Option>& options, const Choice& wanted) {
  for (const Option& option : options) {
    const Choice& c = option.choice;
    if (c.devices == wanted.devices && c.degree == wanted.degree && c.saving == wanted.saving &&
        c.micro_tokens == wanted.micro_tokens)
      return option;
  }
  FAIL("no such option");
  throw;
}

}  // namespace

TEST_CASE(
    "every number of devices is tried with whole weights and in parts, and in between where that helps") {
  const auto roomy = all_options(job(), machine(80, 1e11), kRange);
  CHECK(roomy.size() == (1 + 2 + 2) * 3 * 2);
  for (const Option& option : roomy) CHECK(option.fits());
  // 24 GB: 8 GB are left for tokens beside whole weights; half of them leave room, so that a quarter isn't
  // needed.
  const auto tight = all_options(job(), machine(16, 1e11), kRange);
  const Option& hybrid = find(tight, {4, 2, kNone, 4000});
  CHECK(hybrid.choice.strategy() == "hybrid");
  CHECK(hybrid.fits());
  CHECK_FALSE(find(tight, {4, 1, kNone, 4000}).fits());
}

TEST_CASE("speed and price follow from the step's time") {
  Machine priced = machine(80, 1e11);
  priced.price_per_hour = 2;
  const auto options = all_options(job(), priced, kRange);
  const Option& one = find(options, {1, 1, kNone, 4000});
  CHECK(one.time.total() == Approx(8));
  CHECK(one.tokens_per_second == Approx(1000));
  CHECK(*one.cost_per_million == Approx(2.0 / 3.6));
  const Option& four = find(options, {4, 1, kNone, 4000});
  CHECK(four.tokens_per_second == Approx(4000).epsilon(0.01));
  CHECK(*four.cost_per_million == Approx(2.0 / 3.6).epsilon(0.01));
  CHECK(find(options, {1, 1, kFull, 4000}).time.total() == Approx(11));
}

TEST_CASE("reading the weights bounds how fast a small micro-batch can be") {
  Machine slow_memory = machine(80, 1e11);
  slow_memory.memory_bytes_per_second = 16e9;
  const auto options = all_options(job(), slow_memory, kRange);
  CHECK(find(options, {1, 1, kNone, 1000}).time.total() == Approx(8 * 2));
  CHECK(find(options, {1, 1, kFull, 1000}).time.total() == Approx(8 * 3));
}

TEST_CASE("so does starting a layer's kernels") {
  Machine slow_host = machine(80, 1e11);
  slow_host.least_seconds_per_layer = 0.1;
  Job deep = job();
  deep.work.layers = 10;
  const auto options = all_options(deep, slow_host, kRange);
  CHECK(find(options, {1, 1, kNone, 1000}).time.total() == Approx(8 * 2));
  CHECK(find(options, {1, 1, kNone, 4000}).time.total() == Approx(8));
}

TEST_CASE("every micro-batch takes its time beside its operations, and decodes the weights in each pass") {
  Machine card = machine(80, 1e11);
  card.seconds_per_layer = 0.1;
  Job deep = job();
  deep.work.layers = 10;
  deep.work.decoded_bytes = 5e9;
  const auto time = [&](const Choice& choice) {
    return find(all_options(deep, card, kRange), choice).time.total();
  };
  CHECK(time({1, 1, kNone, 1000}) == Approx(8 + 8 * 2));
  CHECK(time({1, 1, kNone, 4000}) == Approx(8 + 2 * 2));
  CHECK(time({1, 1, kFull, 4000}) == Approx(11 + 2 * 3));
  card.decoded_bytes_per_second = 1e10;
  CHECK(time({1, 1, kNone, 4000}) == Approx(8 + 2 * (2 + 2 * 0.5)));
  CHECK(time({1, 1, kFull, 4000}) == Approx(11 + 2 * (3 + 3 * 0.5)));
  deep.work.forward_decodes = false;
  CHECK(time({1, 1, kFull, 4000}) == Approx(11 + 2 * (3 + 0.5)));
}

TEST_CASE("recomputing gate and up alone lies between") {
  const Range range{{1}, {4000}, {config::ActivationCheckpointing::kMlp}};
  CHECK(all_options(job(), machine(80, 1e11), range).front().time.total() == Approx(9));
}

const std::vector<config::Offload> kOffloads{
    {}, {.activations = true}, {.weights = true}, {.activations = true, .weights = true}};

TEST_CASE("offload is tried where a step doesn't fit without it") {
  const Range range{{1}, {1000, 4000}, {kNone.checkpointing}, kOffloads};
  CHECK(all_options(job(), machine(80, 1e11), range).size() == 2);
  // 18 GB fit; of 21 the activations' 3.6 or the weights' 14.4 have to go.
  const auto tight = all_options(job(), machine(19, 1e11), range);
  REQUIRE(tight.size() == 2 + 3);
  CHECK(tight[0].fits());
  CHECK_FALSE(tight[1].fits());
  for (std::size_t i = 2; i < tight.size(); ++i) CHECK(tight[i].fits());
  CHECK(tight[2].choice.saving.offload == kOffloads[1]);
  // Where nothing helps, what needs least is there to be talked about; larger micro-batches aren't tried.
  const auto hopeless = all_options(job(), machine(2, 1e11), range);
  REQUIRE(hopeless.size() == 3);
  CHECK(hopeless[1].choice.saving.offload == kOffloads[3]);
  CHECK_FALSE(hopeless[1].fits());
}

TEST_CASE("what the host's link can't move beside the computation is waited for") {
  Machine linked = machine(19, 1e11);
  const auto time = [&](const config::Offload& offload) {
    return all_options(job(), linked, {{1}, {4000}, {kNone.checkpointing}, {offload}}).front().time;
  };
  // Two micro-batches of 4 s. Each moves 4 GB out beside forward and back beside backward, or 32 GB in.
  linked.host_bytes_per_second = 20e9;
  CHECK(time(kOffloads[1]).total() == Approx(8));
  CHECK(time(kOffloads[3]).total() == Approx(8));
  linked.host_bytes_per_second = 1e9;
  CHECK(time(kOffloads[0]).total() == Approx(8));
  CHECK(time(kOffloads[1]).offload == Approx(2 * 2 * (4 - 2)));
  CHECK(time(kOffloads[2]).offload == Approx(2 * 2 * (16 - 2)));
  CHECK(time(kOffloads[3]).offload == Approx(2 * (16 - 2 + 20 - 2)));
  // Whatever each card's link could do, the host's memory is one.
  linked.host_bytes_per_second = 20e9;
  linked.host_memory_bytes_per_second = 4e9;
  const auto four = all_options(job(), linked, {{4}, {1000}, {kNone.checkpointing}, {kOffloads[1]}}).front();
  // Two micro-batches of 1 s for each; each moves 1 GB at 1 GB/s beside half a second.
  CHECK(four.time.offload == Approx(2 * 2 * (1 - 0.5)));
}

TEST_CASE("a single degree is tried alone") {
  Range range = kRange;
  range.devices = {4};
  range.degree = 2;
  const auto options = all_options(job(), machine(80, 1e11), range);
  CHECK(options.size() == 3 * 2);
  for (const Option& option : options) CHECK(option.choice.degree == 2);
}

TEST_CASE("processes of one machine share its memory and its rate") {
  Machine shared = machine(80, 1e11);
  shared.shared = true;
  const auto options = all_options(job(), shared, kRange);
  CHECK(find(options, {4, 1, kNone, 1000}).available == 20 * kGB);
  CHECK(find(options, {4, 1, kNone, 1000}).time.compute == Approx(8));
}

TEST_CASE(
    "of equally fast options that with fewer devices is best, without checkpointing, near the usual size") {
  const auto options = all_options(job(), machine(80, 1e11),
                                   {{1}, {1000, 2000, 4000}, {kNone.checkpointing, kFull.checkpointing}});
  const Option* best = fastest(options, 2000, any);
  CHECK(best->choice.micro_tokens == 2000);
  CHECK(best->choice.saving == kNone);
  CHECK(fastest(options, 500, any)->choice.micro_tokens == 1000);
  // Filling and emptying makes small micro-batches slower, here by 14% each time; still none is taken beyond
  // the usual size.
  Machine card = machine(80, 1e11);
  card.seconds_per_layer = 0.1;
  Job deep = job();
  deep.work.layers = 10;
  const auto slower = all_options(deep, card, {{1}, {1000, 2000, 4000}, {kNone.checkpointing}});
  CHECK(fastest(slower, 4000, any)->choice.micro_tokens == 4000);
  CHECK(fastest(slower, 2000, any)->choice.micro_tokens == 2000);
  CHECK(fastest(all_options(job(), machine(10, 1e11), {{1}, {1000}, {kNone.checkpointing}}), 2000, any) ==
        nullptr);
}

TEST_CASE("the decision answers in figures: what fits, what the link carries, whether several beat one") {
  const Machine fast = machine(24, 1e11);
  const auto options = all_options(job(), fast, kRange);
  const Decision decision = decide(options, fast, job().work, 4000);
  REQUIRE(decision.questions.size() == 4);
  for (const Question& asked : decision.questions) CHECK(asked.answer);
  CHECK_THAT(decision.questions[0].because, Contains("of 22.4 GiB with micro-batches of 4000 tokens"));
  CHECK(decision.best->choice.devices == 4);
  CHECK(decision.best->choice.strategy() == "replicate");
  CHECK_THAT(decision.verdict, Contains("train on 4 devices with replicate") && Contains("4.00x of one"));
}

TEST_CASE("a slow link carries the adapter but not the base") {
  const Machine slow = machine(24, 1e9);
  const auto options = all_options(job(), slow, kRange);
  const Decision decision = decide(options, slow, job().work, 4000);
  CHECK(decision.questions[1].answer);
  CHECK_FALSE(decision.questions[2].answer);
  CHECK(decision.best->choice.strategy() == "replicate");
}

TEST_CASE("a base that one device can't hold is shared by several, however slow that is") {
  const Machine small = machine(12, 1e9);
  const auto options = all_options(job(), small, kRange);
  const Decision decision = decide(options, small, job().work, 4000);
  CHECK(decision.on_one == nullptr);
  CHECK_FALSE(decision.questions[0].answer);
  CHECK_THAT(decision.questions[0].because, Contains("15.8 GiB of them for weights"));
  CHECK(decision.questions[3].answer);
  CHECK(decision.best->choice.degree > 1);
}

TEST_CASE("on a link so slow that even the adapter waits, one device is best") {
  const Machine slow = machine(80, 1e7);
  const auto options = all_options(job(), slow, kRange);
  const Decision decision = decide(options, slow, job().work, 4000);
  CHECK_FALSE(decision.questions[1].answer);
  CHECK_FALSE(decision.questions[3].answer);
  CHECK(decision.best->choice.devices == 1);
  CHECK_THAT(decision.verdict, Contains("train on one device"));
}

TEST_CASE("where nothing fits the decision says so") {
  const Machine tiny = machine(3, 1e11);
  const auto options = all_options(job(), tiny, kRange);
  const Decision decision = decide(options, tiny, job().work, 4000);
  CHECK(decision.best == nullptr);
  CHECK_THAT(decision.verdict, Contains("none of these fits"));
  CHECK_THAT(decision.questions[3].because, Contains("they can't hold it either"));
}
