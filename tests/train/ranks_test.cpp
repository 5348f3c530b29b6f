// The training loop on several ranks, which are threads of this process, against one.
#include <ATen/ATen.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/strings.h"
#include "comm/ranks.h"
#include "parallel/weight_gatherer.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/toy_lora.h"
#include "train/loop.h"

using namespace lorikeet;
using namespace lorikeet::train;
using namespace lorikeet::test;

namespace {

struct Case {
  double dropout = 0;
  bool packing = true;
  config::MemorySaving saving = {};
  precision::Policy policy = fp32_policy();
  int degree = 1;  // ranks that share one copy of the weights
  bool dora = false;
  bool tables = false;  // an adapter on the embedding, the head trained whole
};

struct Outcome {
  std::vector<double> losses, norms, validation;
  at::Tensor start, adapter;
  LoopEnd end = LoopEnd::kFinished;
  std::vector<Json> lines;
};

// 24 sequences of 2 to 9 tokens of the toy vocabulary.
data::TokenDataset sequences() {
  data::TokenRows rows;
  for (std::int32_t i = 0; i < 24; ++i) {
    std::vector<std::int32_t> ids;
    for (std::int32_t t = 0; t < 2 + i % 8; ++t) ids.push_back((i * 5 + t * 3) % 13);
    rows.add(ids, ids, i, i + 1);
  }
  return data::TokenDataset(std::move(rows));
}

// One rank's run; `group` is null for a run on one device, `sharers` where each rank has all weights.
Outcome run_rank(const Case& c, comm::Communicator* group, comm::Communicator* sharers = nullptr,
                 const LoopHooks& hooks = {}) {
  const TemporaryFolder folder;
  const nn::WeightShard shard =
      sharers != nullptr ? nn::WeightShard{sharers->rank(), sharers->size()} : nn::WeightShard{};
  peft::LoraConfig config{.rank = 3, .alpha = 6, .dropout = c.dropout, .use_dora = c.dora};
  if (c.tables) {
    config.target_modules = {".*"};
    config.modules_to_save = {"output"};
  }
  ToyLora toy(config, c.policy, shard);
  std::optional<parallel::WeightGatherer> gatherer;
  if (sharers != nullptr) gatherer.emplace(*sharers, toy.model);
  toy.adapters.initialize(peft::LoraInit::kKaiming, toy.model.store());
  Outcome out;
  out.start = toy.adapters.store().values().clone();
  AdamW optimizer(toy.adapters.store(), {});
  const data::TokenDataset training = sequences();
  const data::TokenDataset validation = training.subset({1, 5, 9, 12, 20});
  const data::Sampler sampler(training, {.examples_per_step = 5, .epochs = 4});  // 20 steps
  std::optional<MetricsWriter> metrics;
  if (group == nullptr || group->rank() == 0) metrics.emplace(folder / "metrics.jsonl", 0);
  RunState state;
  const LoopParts parts{.model = toy.model,
                        .adapters = toy.adapters,
                        .optimizer = optimizer,
                        .training = training,
                        .sampler = sampler,
                        .validation = &validation,
                        .device = at::kCPU,
                        .group = group,
                        .metrics = &metrics};
  const LoopOptions options{
      .schedule = {.kind = config::SchedulerName::kConstant, .lr = 0.01, .total_steps = 20},
      .micro = {.micro_tokens = 16, .packing = c.packing},
      .validate_every_steps = 10,
      .saving = c.saving,
      .verify = true};
  out.end = run_loop(parts, options, hooks, state);
  out.adapter = toy.adapters.store().values().clone();
  if (metrics) {
    for (const std::string& line : split(read_file(folder / "metrics.jsonl"), '\n')) {
      if (line.empty()) continue;
      out.lines.push_back(Json::parse(line, "metrics"));
      const JsonView view(out.lines.back(), "line");
      if (view.maybe("val_loss")) {
        out.validation.push_back(view.at("val_loss").as_number());
      } else {
        out.losses.push_back(view.at("loss").as_number());
        out.norms.push_back(view.at("grad_norm").as_number());
      }
    }
  }
  return out;
}

// The outcomes of `size` ranks.
std::vector<Outcome> run_ranks(const Case& c, int size, const std::function<LoopHooks(int)>& hooks = {},
                               comm::Observer* observer = nullptr) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  std::mutex mutex;
  std::vector<c10::intrusive_ptr<c10d::HashStore>> stores;
  for (int i = 0; i < size; i += c.degree) stores.push_back(c10::make_intrusive<c10d::HashStore>());
  on_ranks(size,
           [&](comm::Communicator& group) {
             std::unique_ptr<comm::Communicator> sharers;
             if (c.degree > 1) {
               sharers = comm::Communicator::join(stores[static_cast<std::size_t>(group.rank() / c.degree)],
                                                  group.rank() % c.degree, c.degree, at::Device(at::kCPU),
                                                  {.observer = observer, .ledger = group.ledger()});
             }
             Outcome own = run_rank(c, &group, sharers.get(), hooks ? hooks(group.rank()) : LoopHooks{});
             const std::lock_guard lock(mutex);
             outcomes[static_cast<std::size_t>(group.rank())] = std::move(own);
           },
           {.observer = observer});
  return outcomes;
}

double worst(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return 1e9;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return most;
}

precision::Policy bf16_compute() {
  precision::Policy policy = fp32_policy();
  policy.compute = DType::kBF16;
  return policy;
}

}  // namespace

constexpr config::MemorySaving kFull{.checkpointing = config::ActivationCheckpointing::kFull};

TEST_CASE("two to four ranks give the losses of one, with all that a step may use and every strategy") {
  std::vector<std::pair<Case, double>> cases;  // and how far losses may be apart, relative
  for (const double dropout : {0.0, 0.1}) {
    for (const bool packing : {true, false}) {
      for (const auto& saving : {config::MemorySaving{}, kFull}) {
        cases.push_back({{dropout, packing, saving}, 3e-6});
      }
    }
  }
  cases.push_back({{.dropout = 0.1, .tables = true}, 3e-6});
  cases.push_back({{0.1, true, {config::ActivationCheckpointing::kMlp, {.activations = true}}}, 3e-6});
  // In bf16 sums over a step, taken in another order, don't reach the activations but by the adapter's
  // rounding to its compute copy: a last bit of it now and then, 2^-9 of a value.
  cases.push_back({{0.1, true, {}, bf16_compute()}, 2e-3});
  cases.push_back({{0.0, false, kFull, bf16_compute()}, 2e-3});
  // fp16 has three more bits.
  cases.push_back({{0.1, false, {}, precision::resolve({.preset = config::PrecisionPreset::kFp16})}, 3e-4});
  // Ranks and how many of them share a copy of the weights: replicate, shard, hybrid.
  const std::vector<std::pair<int, int>> layouts{{2, 1}, {3, 1}, {4, 1}, {2, 2}, {3, 3}, {4, 4}, {4, 2}};
  for (const auto& [c, tolerance] : cases) {
    const Outcome one = run_rank(c, nullptr);
    REQUIRE(one.losses.size() == 20);
    CHECK(one.losses.back() < 0.9 * one.losses.front());
    for (const auto& [size, degree] : layouts) {
      INFO(size << " ranks, " << degree << " share weights, dropout " << c.dropout << ", packing "
                << c.packing << ", " << config::overrides({}, c.saving) << ", tolerance " << tolerance);
      Case several = c;
      several.degree = degree;
      const auto ranks = run_ranks(several, size);
      CHECK(worst(ranks[0].losses, one.losses) < tolerance);
      CHECK(worst(ranks[0].validation, one.validation) < tolerance);
      for (const Outcome& rank : ranks) {
        CHECK(at::equal(rank.start, one.start));
        CHECK(at::equal(rank.adapter, ranks[0].adapter));
      }
    }
  }
}

TEST_CASE("a validation that is interrupted on one rank ends the run of all behind the same step") {
  for (const int degree : {1, 2}) {
    for (const int asked : {0, 1}) {
      std::array<std::atomic<int>, 2> questions{};
      const auto ranks = run_ranks({.degree = degree}, 2, [&](int rank) {
        // Each step asks once; the eleventh to ask is the validation behind ten of them.
        return LoopHooks{.interrupted = [&, rank] { return ++questions[rank] > 10 && rank == asked; }};
      });
      for (const Outcome& rank : ranks) {
        CHECK(rank.end == LoopEnd::kInterrupted);
        CHECK(at::equal(rank.adapter, ranks[0].adapter));
      }
      CHECK(ranks[0].losses.size() == 10);
      CHECK(ranks[0].validation.empty());
    }
  }
}

TEST_CASE("how weights are held changes no bit of what the same ranks compute") {
  for (const bool dora : {false, true}) {
    const auto replicated = run_ranks({.dropout = 0.1, .dora = dora}, 4);
    for (const int degree : {2, 4}) {
      const auto split = run_ranks({.dropout = 0.1, .degree = degree, .dora = dora}, 4);
      CHECK(split[0].losses == replicated[0].losses);
      CHECK(at::equal(split[3].adapter, replicated[0].adapter));
    }
  }
}

TEST_CASE("the comparison tells a run with a hundredth of dropout from one without") {
  const Outcome one = run_rank({}, nullptr);
  const Outcome other = run_rank({.dropout = 0.01}, nullptr);
  CHECK(worst(other.losses, one.losses) > 1e-4);
}

TEST_CASE("hybrid ranks issue the collectives of both their groups in one order") {
  // What each rank, which is a thread, has issued: "all-gather 1", "all-gather 2", ...
  struct IssueLog : comm::Observer {
    std::mutex mutex;
    std::map<std::thread::id, std::vector<std::string>> issued;
    void begin(comm::Collective collective, std::uint64_t sequence) override {
      const std::lock_guard lock(mutex);
      issued[std::this_thread::get_id()].push_back(std::string(comm::name_of(collective)) + " " +
                                                   std::to_string(sequence));
    }
    void waits(std::uint64_t) override {}
    void end() override {}
  } log;
  run_ranks({.degree = 2}, 4, {}, &log);
  REQUIRE(log.issued.size() == 4);
  const std::vector<std::string>& first = log.issued.begin()->second;
  for (const auto& [rank, issued] : log.issued) CHECK(issued == first);
  int reduces = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK_THAT(first[i], Catch::EndsWith(" " + std::to_string(i + 1)));  // both groups have one count
    if (first[i].starts_with("all-reduce")) ++reduces;
  }
  CHECK(reduces >= 20);  // gradients of each step; the rest are weights and reports
  CHECK(first.size() > 3 * static_cast<std::size_t>(reduces));
}

TEST_CASE("a line of several ranks tells what was waited for and sent") {
  const auto ranks = run_ranks({}, 3);
  CHECK(ranks[1].lines.empty());
  const JsonView line(ranks[0].lines.at(3), "line");
  const double gradient_bytes = static_cast<double>(ranks[0].adapter.numel()) * 4;
  const double table_bytes = 3 * 7 * 8;
  CHECK(line.at("comm_bytes").as_number() == Approx(gradient_bytes * 4 / 3 + table_bytes * 2 / 3));
  const JsonView by = line.at("comm_bytes_by_collective");
  CHECK(by.at("all-reduce").as_number() == Approx(gradient_bytes * 4 / 3));
  CHECK(by.at("all-gather").as_number() == Approx(table_bytes * 2 / 3));
  CHECK(line.at("slowest_rank_seconds").as_number() >= line.at("fastest_rank_seconds").as_number());
  CHECK(line.at("comm_share").as_number() <= 1);
  CHECK(line.at("tokens_per_second").as_number() ==
        Approx(3 * line.at("tokens_per_second_per_device").as_number()));
}

TEST_CASE("an interrupt that one rank hears ends all of them behind the same step") {
  std::atomic<int> asked{0};
  const auto ranks = run_ranks({}, 3, [&](int rank) {
    LoopHooks hooks;
    if (rank == 2) hooks.interrupted = [&asked] { return ++asked > 4; };
    return hooks;
  });
  for (const Outcome& rank : ranks) {
    CHECK(rank.end == LoopEnd::kInterrupted);
    CHECK(at::equal(rank.adapter, ranks[0].adapter));
  }
  CHECK(ranks[0].losses.size() == 5);
}
