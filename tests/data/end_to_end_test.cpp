#include "base/file.h"
#include "data/load.h"
#include "data/micro_batch.h"
#include "data/sampler.h"
#include "support/catch.h"
#include "support/fake_tokenizer.h"
#include "support/paths.h"

using namespace lorikeet;

TEST_CASE("alpaca JSON lines become a data set, steps and micro-batches that hold every token once") {
  const test::TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 23; ++i) {
    lines += R"({"instruction": "Say )" + std::to_string(i) + R"(", "input": "", "output": ")" +
             std::string(static_cast<std::size_t>(i % 7 + 1), 'x') + "\"}\n";
  }
  write_file_atomic(folder / "train.jsonl", lines);
  data::DataOptions options;
  options.train_path = folder / "train.jsonl";
  options.cache_dir = folder / "cache";
  const auto tokenizer = test::fake_tokenizer();
  const data::LoadedData loaded = data::load_data(options, *tokenizer);
  REQUIRE(loaded.train.size() == 23);
  CHECK(loaded.train_report.format == "alpaca (found)");
  CHECK_THAT(loaded.train_report.template_description, Catch::StartsWith("alpaca"));

  const data::Sampler sampler(loaded.train, {.examples_per_step = 5, .epochs = 2});
  REQUIRE(sampler.total_steps() == 10);
  std::int64_t tokens = 0;
  std::int64_t labels = 0;
  for (std::int64_t s = 0; s < sampler.total_steps(); ++s) {
    const data::Step step = sampler.step(s);
    std::int64_t step_labels = 0;
    for (const data::MicroBatch& batch :
         data::make_micro_batches(loaded.train, step.examples, {.micro_tokens = 500})) {
      CHECK(batch.real_tokens <= 500);
      tokens += batch.real_tokens;
      step_labels += batch.label_count();
    }
    CHECK(step_labels == data::step_label_count(loaded.train, step));
    labels += step_labels;
  }
  CHECK(tokens == 2 * loaded.train.total_tokens());
  CHECK(labels == 2 * loaded.train.total_labels());
}
