// Micro-steps as CUDA graphs: the numbers of those that aren't, and what the host still does.
#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "card/graph.h"
#include "card/memory.h"
#include "card/micro_step_report.h"
#include "ops/device_graph.h"
#include "ops/own_stream.h"
#include "support/captured_stderr.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/reference_ops.h"
#include "train/graphed_micro_steps.h"

using namespace lorikeet;

namespace {

const at::Device kCard("cuda:1");
constexpr int kTokens = 96;

// A model whose values are all set, and never the same twice.
struct Trained {
  explicit Trained(const std::string& family) : on_card({.family = family, .tokens = kTokens}) {
    for (const auto& unit : on_card.model.store().units()) {
      for (std::size_t i = 0; i < unit->segments().size(); ++i)
        unit->tensor(i).copy_(at::randn(unit->tensor(i).sizes()) * 0.1);
    }
    change(0.1);
  }

  void change(double scale) {
    on_card.adapters.store().all_values().copy_(at::randn(on_card.adapters.store().all_values().sizes()) *
                                                scale);
    on_card.adapters.store().refresh_compute();
  }

  at::Tensor gradients() { return on_card.adapters.store().gradients(); }

  card::CardModel on_card;
};

// The n-th of many batches of one shape, of sequences of `first` and the other tokens.
nn::Batch batch(int n, int first = 40, int tokens = kTokens, int labels = 7) {
  std::vector<std::vector<std::int32_t>> sequences(2);
  for (int i = 0; i < tokens; ++i) sequences[i < first ? 0 : 1].push_back((i * 7 + n * 13) % 64);
  nn::Batch out = nn::pack_sequences(sequences, {}, kCard);
  const auto ids = at::TensorOptions(at::kLong);
  out.label_rows = (at::arange(0, labels, ids) * 3 + n % 5).to(kCard);
  out.labels = ((at::arange(0, labels, ids) * 5 + n) % 64).to(kCard);
  out.label_count = labels;
  return out;
}

struct Sums {
  double loss = 0;
  at::Tensor gradients;
};

bool equal(const Sums& a, const Sums& b) {
  return a.loss == b.loss && at::equal(a.gradients.cpu(), b.gradients.cpu());
}

template <typename Run>
Sums sums(Trained& model, const std::vector<nn::Batch>& batches, const Run& run) {
  model.gradients().zero_();
  Sums out;
  for (const nn::Batch& one : batches) out.loss += run(one).template item<double>();
  out.gradients = model.gradients().cpu();
  return out;
}

// Without graphs.
Sums usual(Trained& model, const std::vector<nn::Batch>& batches,
           const train::MicroStepOptions& options = {}) {
  return sums(model, batches,
              [&](const nn::Batch& one) { return train::run_micro_step(model.on_card.model, one, options); });
}

}  // namespace

TEST_CASE("recorded micro-steps have the numbers of others, and seven launches of the host") {
  const ops::OwnStream stream(kCard);
  for (const std::string family : {"llama", "qwen3"}) {
    INFO(family);
    Trained model(family);
    train::GraphedMicroSteps graphed(model.on_card.model);
    const auto with = [&](const nn::Batch& one) { return graphed.run(one, {.loss_scale = 0.5}); };
    for (int step = 0; step < 3; ++step) {
      std::vector<nn::Batch> batches;
      for (int i = 0; i < 3; ++i) batches.push_back(batch(step * 3 + i));
      const Sums expected = usual(model, batches, {.loss_scale = 0.5});
      card::reset_report();
      const Sums got = sums(model, batches, with);
      CHECK(equal(got, expected));
      CHECK(expected.gradients.abs().sum().item<double>() > 0);
      CHECK(card::report().hazards.empty());
      // The first is as ever, the second is recorded and launched.
      CHECK(card::report().graph_launches == (step == 0 ? 2 : 3));
      model.change(0.1 + step);
    }
    CHECK(graphed.use().graphs == 1);

    const nn::Batch one = batch(20);
    card::reset_report();
    graphed.run(one, {.loss_scale = 0.5});
    CHECK(card::report().launches == 6);  // and one adds the loss to a step's
    CHECK(card::report().waits.empty());
  }
}

TEST_CASE("other shapes and scales have graphs of their own, up to eight") {
  const ops::OwnStream stream(kCard);
  Trained model("llama");
  train::GraphedMicroSteps graphed(model.on_card.model);
  const auto both = [&](const nn::Batch& one, double scale) {
    const train::MicroStepOptions options{.loss_scale = scale};
    const Sums got = sums(model, {one}, [&](const nn::Batch& b) { return graphed.run(b, options); });
    CHECK(equal(got, usual(model, {one}, options)));
  };
  for (int round = 0; round < 3; ++round) {
    both(batch(round), 1);
    both(batch(round), 0.25);                // the scale is a number of the launch
    both(batch(round, 41), 1);               // sequences of other lengths
    both(batch(round, 40, kTokens + 8), 1);  // more tokens
    both(batch(round, 40, kTokens, 9), 1);   // more labels
  }
  CHECK(graphed.use().graphs == 5);
  for (int first = 10; first < 20; ++first) {
    both(batch(0, first), 1);
    both(batch(1, first), 1);
  }
  CHECK(graphed.use().graphs == 8);
  // The first of each shape isn't a launch, nor are the two of shapes that came too late.
  CHECK(graphed.use().micro_steps == 3 * 5 + 10 * 2);
  CHECK(graphed.use().launched == 2 * 5 + 3);
}

TEST_CASE("rows of many lengths bring no graph, and a warning") {
  const ops::OwnStream stream(kCard);
  Trained model("llama");
  train::GraphedMicroSteps graphed(model.on_card.model);
  const test::CapturedStderr log;
  for (int i = 0; i < 66; ++i) graphed.run(batch(i, 20 + i), {});
  CHECK(graphed.use().graphs == 0);
  const std::string said = log.text();
  const std::size_t first = said.find("none of 64 micro-steps had the shape of another");
  CHECK(first != std::string::npos);
  CHECK(said.find("none of 64", first + 1) == std::string::npos);
}

TEST_CASE("a longer batch replaces the rotary tables that a graph reads") {
  const ops::OwnStream stream(kCard);
  Trained model("llama");
  train::GraphedMicroSteps graphed(model.on_card.model);
  for (int i = 0; i < 3; ++i) graphed.run(batch(i), {});
  REQUIRE(graphed.use().graphs == 1);
  train::run_micro_step(model.on_card.model, batch(0, 40, 1200), {});  // 1,160 positions
  const nn::Batch one = batch(4);
  const Sums got = sums(model, {one}, [&](const nn::Batch& b) { return graphed.run(b, {}); });
  CHECK(equal(got, usual(model, {one})));
}

TEST_CASE("where a micro-step can't be recorded, the run goes on without graphs") {
  Trained model("llama");  // on the default stream, which CUDA refuses
  train::GraphedMicroSteps graphed(model.on_card.model);
  const test::CapturedStderr log;
  std::vector<nn::Batch> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(batch(i));
  card::reset_report();
  const Sums got = sums(model, batches, [&](const nn::Batch& b) { return graphed.run(b, {}); });
  CHECK(card::report().graph_launches == 0);
  CHECK(equal(got, usual(model, batches)));
  CHECK(graphed.use().graphs == 0);
  CHECK(log.text().find("a micro-step of 96 tokens couldn't be recorded, and the run goes on without graphs: "
                        "CUDA error: operation not permitted on the default stream") != std::string::npos);
}

TEST_CASE("a recording that CUDA refused a part of ends the run") {
  const ops::OwnStream stream(kCard);
  // Their masks are made on the host, by the tokens' ids.
  const test::ReferenceOps references;
  card::CardModel model({.tokens = kTokens}, {.rank = 8, .alpha = 24, .dropout = 0.1});
  model.adapters.store().all_values().fill_(0.01);
  model.adapters.store().refresh_compute();
  train::GraphedMicroSteps graphed(model.model);
  graphed.run(batch(0), {});
  CHECK_THAT(test::error_text([&] { graphed.run(batch(1), {}); }, ErrorKind::kRunFailed),
             Catch::Contains("[training.cuda_graphs] CUDA refused a part of a micro-step's recording") &&
                 Catch::Contains("operation not permitted when stream is capturing: copy to the host"));
}

TEST_CASE("memory that is too short for a recording leaves the run without graphs") {
  const ops::OwnStream stream(kCard);
  Trained model("llama");
  train::GraphedMicroSteps graphed(model.on_card.model);
  const nn::Batch first = batch(0), second = batch(1);
  graphed.run(first, {});
  const test::CapturedStderr log;
  // As much as is left, but what a micro-step has at a time; a recording gives nothing back.
  const std::int64_t before = card::used_bytes(1);
  card::reset_peak(1);
  train::run_micro_step(model.on_card.model, first, {});
  const std::int64_t moving = card::peak_bytes(1) - before;
  const std::int64_t free = (std::int64_t{64} << 20) - card::used_bytes(1);
  const at::Tensor taken = at::empty({free - moving * 3 / 2}, at::TensorOptions(kCard).dtype(at::kByte));
  const Sums got = sums(model, {second}, [&](const nn::Batch& b) { return graphed.run(b, {}); });
  CHECK_THAT(
      log.text(),
      Catch::Contains("couldn't be recorded, and the run goes on without graphs: fake card out of memory"));
  CHECK(graphed.use().graphs == 0);
  CHECK(equal(got, usual(model, {second})));
}

TEST_CASE("the fake card's graphs do their work when they are launched, and as a card would") {
  const ops::OwnStream stream(kCard);
  const auto graph = ops::make_device_graph();
  at::Tensor sum = at::zeros({4}, kCard), one = at::ones({4}, kCard);
  graph->begin();
  sum.add_(one * 2);
  graph->end();
  CHECK(sum.sum().item<double>() == 0);
  graph->launch();
  one.fill_(5);  // read at its place
  graph->launch();
  CHECK(sum.cpu().equal(at::full({4}, 12.0F)));
  one.reset();  // what it read is freed: NaN
  graph->launch();
  CHECK(sum.isnan().all().item<bool>());
}

TEST_CASE("the fake card refuses to record a wait, and says so again at the recording's end") {
  const ops::OwnStream stream(kCard);
  const at::Tensor sum = at::zeros({4}, kCard);
  const auto graph = ops::make_device_graph();
  graph->begin();
  CHECK_THROWS_WITH(sum.sum().item<double>(), Catch::Contains("capturing"));
  CHECK_THROWS_WITH(graph->end(), Catch::Contains("previous error during capture"));
}
