#include "train/checkpoint.h"

#include <ATen/ATen.h>

#include <functional>

#include "io/folders.h"
#include "io/safetensors.h"
#include "models/toy_fused.h"
#include "peft/tensor_bytes.h"
#include "support/captured_stderr.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::train;
using namespace lorikeet::test;
using Catch::Contains;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

namespace {

const peft::LoraConfig kConfig{.rank = 2, .alpha = 4, .target_modules = {"query", "w2"}};

struct Run {
  ToyLora toy;
  AdamW optimizer{toy.adapters.store(), {}};

  explicit Run(const peft::LoraConfig& config = kConfig, const nn::CausalLMSpec& spec = toy_spec())
      : toy(config, fp32_policy(), {}, spec) {}

  // Some updates of gradients that depend on `seed`.
  void train(int updates, std::uint64_t seed) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (int i = 0; i < updates; ++i) {
      at::Tensor gradients = toy.adapters.store().gradients();
      gradients.copy_(at::randn(gradients.sizes(), generator, at::TensorOptions(at::kFloat)));
      optimizer.step(0.01);
    }
  }
};

void check_equal(const Run& a, const Run& b) {
  CHECK(at::equal(a.toy.adapters.store().all_values(), b.toy.adapters.store().all_values()));
  CHECK(at::equal(a.optimizer.exp_avg(), b.optimizer.exp_avg()));
  CHECK(at::equal(a.optimizer.exp_avg_sq(), b.optimizer.exp_avg_sq()));
  CHECK(at::equal(a.optimizer.updates(), b.optimizer.updates()));
}

}  // namespace

TEST_CASE("a run that goes on from a checkpoint equals one that never stopped, to the bit") {
  const TemporaryFolder folder;
  const CheckpointStore checkpoints(folder.path(), "base", 3);
  Run run;
  run.train(3, 1);
  const RunState state{.step = 3,
                       .elapsed_seconds = 0.1 + 0.2,
                       .best = RunState::Best{2, 1.0 / 3},
                       .evaluations_since_best = 1};
  checkpoints.save(state, run.toy.adapters, run.optimizer);
  CHECK(checkpoints.steps() == Steps{3});

  Run resumed;
  resumed.toy.randomize(77);
  const RunState found = checkpoints.load(3, resumed.toy.adapters, resumed.optimizer);
  check_equal(resumed, run);
  CHECK(found.json().dump() == state.json().dump());
  CHECK(found.best->val_loss == 1.0 / 3);

  run.train(2, 9);
  resumed.train(2, 9);
  check_equal(resumed, run);
}

TEST_CASE(
    "moments of interleaved modules are stored in the checkpoint's order, and a run resumes to the bit") {
  const peft::LoraConfig config{.rank = 2, .alpha = 4, .target_modules = {"qkv", "w13"}};
  const TemporaryFolder folder;
  const CheckpointStore checkpoints(folder.path(), "base", 3);
  Run run(config, fused_toy_spec());
  run.train(3, 1);
  checkpoints.save({.step = 3}, run.toy.adapters, run.optimizer);

  const auto file = io::SafetensorsFile::open(folder / "checkpoints/step_3/optimizer.safetensors");
  const peft::AdapterStore& store = run.toy.adapters.store();
  const peft::AdapterSegment& b = store.segment(run.toy.adapters.modules().at(0).b);
  REQUIRE(b.name == "transformer.h.0.attn.qkv.lora_B.weight");
  const std::vector<std::pair<std::string, at::Tensor>> moments{{"exp_avg.", run.optimizer.exp_avg()},
                                                                {"exp_avg_sq.", run.optimizer.exp_avg_sq()}};
  for (const auto& [prefix, flat] : moments) {
    const io::TensorView& view = *file.find(prefix + b.name);
    const at::Tensor stored = at::empty(b.shape);
    peft::copy_into({view.name, view.dtype, view.shape}, view.bytes, stored, "file");
    const at::Tensor held = flat.narrow(0, b.offset, b.size()).view(b.shape);
    CHECK(at::equal(stored, fuse_rows(held.split_with_sizes({32, 16, 16}), 2)));
    CHECK_FALSE(at::equal(stored, held));
  }

  Run resumed(config, fused_toy_spec());
  resumed.toy.randomize(77);
  checkpoints.load(3, resumed.toy.adapters, resumed.optimizer);
  check_equal(resumed, run);
  // A run that takes the rows for its group's order goes on from other values and moments.
  Run wrong(config, uninterleaved_toy_spec());
  checkpoints.load(3, wrong.toy.adapters, wrong.optimizer);
  CHECK_FALSE(at::equal(wrong.toy.adapters.store().values(), store.values()));
  CHECK_FALSE(at::equal(wrong.optimizer.exp_avg(), run.optimizer.exp_avg()));
  CHECK_FALSE(at::equal(wrong.optimizer.exp_avg_sq(), run.optimizer.exp_avg_sq()));

  run.train(2, 9);
  resumed.train(2, 9);
  check_equal(resumed, run);
}

TEST_CASE("a state without a best evaluation has none after loading") {
  const Json json = RunState{.step = 5}.json();
  CHECK_FALSE(RunState::from_json(JsonView(json, "state")).best.has_value());
}

TEST_CASE("only the last checkpoints are kept, by number and not by name") {
  const TemporaryFolder folder;
  const CheckpointStore checkpoints(folder.path(), "base", 2);
  const Run run;
  for (const std::int64_t step : {8, 9, 10, 100})
    checkpoints.save({.step = step}, run.toy.adapters, run.optimizer);
  CHECK(checkpoints.steps() == Steps{10, 100});
  CHECK_FALSE(fs::exists(folder / "checkpoints/step_9"));
}

TEST_CASE("without a limit all checkpoints stay") {
  const TemporaryFolder folder;
  const CheckpointStore checkpoints(folder.path(), "base", std::nullopt);
  const Run run;
  for (std::int64_t step = 1; step <= 5; ++step) {
    checkpoints.save({.step = step}, run.toy.adapters, run.optimizer);
  }
  CHECK(checkpoints.steps().size() == 5);
}

TEST_CASE("folders that are not this project's checkpoints are neither counted nor removed") {
  const TemporaryFolder folder, elsewhere;
  const fs::path root = folder / "checkpoints";
  fs::create_directories(root / "step_1");  // no marker
  write_file_atomic(root / "step_1/notes.txt", "mine");
  fs::create_directories(root / "step_2x");
  write_file_atomic(root / "step_2x" / io::kMarkerFile, "{}");
  fs::create_directories(root / "step_");
  write_file_atomic(elsewhere / io::kMarkerFile, "{}");
  fs::create_directory_symlink(elsewhere.path(), root / "step_3");
  const CheckpointStore checkpoints(folder.path(), "base", 1);
  CHECK(checkpoints.steps().empty());
  const Run run;
  for (const std::int64_t step : {5, 6}) checkpoints.save({.step = step}, run.toy.adapters, run.optimizer);
  CHECK(checkpoints.steps() == Steps{6});
  checkpoints.remove_all();
  CHECK(checkpoints.steps().empty());
  CHECK(read_file(root / "step_1/notes.txt") == "mine");
  CHECK(fs::exists(root / "step_2x" / io::kMarkerFile));
  CHECK(fs::exists(root / "step_"));
  CHECK(fs::exists(elsewhere / io::kMarkerFile));
  CHECK_FALSE(fs::exists(root / "step_6"));
}

TEST_CASE("a copy of a checkpoint under another name is neither counted nor removed, and changes nothing") {
  const TemporaryFolder folder;
  const fs::path root = folder / "checkpoints";
  const CheckpointStore checkpoints(folder.path(), "base", 1);
  const Run run;
  const CapturedStderr warnings;
  checkpoints.save({.step = 4}, run.toy.adapters, run.optimizer);
  for (const char* copy : {"step_04", "step_0099", "step_-4"})
    fs::copy(root / "step_4", root / copy, fs::copy_options::recursive);
  CHECK(checkpoints.steps() == Steps{4});
  for (const std::int64_t step : {5, 6}) checkpoints.save({.step = step}, run.toy.adapters, run.optimizer);
  CHECK(checkpoints.steps() == Steps{6});
  fs::remove(root / "step_04" / io::kMarkerFile);
  CHECK(checkpoints.unmarked().empty());
  CHECK_FALSE(fs::exists(root / "step_4"));
  CHECK(fs::exists(root / "step_04"));
  CHECK(warnings.text().empty());
}

TEST_CASE(
    "checkpoints that can't be read are an error to who asks for them, and none to who removes old ones") {
  const TemporaryFolder folder;
  fs::create_symlink("checkpoints", folder / "checkpoints");  // a link to itself can't be followed
  const CheckpointStore checkpoints(folder.path(), "base", 1);
  for (const auto& ask : {std::function<void()>([&] { checkpoints.steps(); }),
                          std::function<void()>([&] { checkpoints.unmarked(); })})
    CHECK_THAT(error_text(ask, ErrorKind::kEnvironment), Contains("can't read the folder"));
  const CapturedStderr warnings;
  CHECK_NOTHROW(checkpoints.remove_old());
  CHECK_THAT(warnings.text(), Contains("can't read the folder") && Contains("an old checkpoint stays"));
}

TEST_CASE("a checkpoint of another adapter, or one that lacks a file, is an error") {
  const TemporaryFolder folder;
  const CheckpointStore checkpoints(folder.path(), "base", 1);
  Run run;
  checkpoints.save({.step = 1}, run.toy.adapters, run.optimizer);

  ToyLora other({.rank = 2, .alpha = 4, .target_modules = {"query"}});
  AdamW optimizer(other.adapters.store(), {});
  CHECK_THAT(error_text([&] { checkpoints.load(1, other.adapters, optimizer); }),
             Contains("6 tensors are unexpected"));

  fs::rename(folder / "checkpoints/step_1", folder / "checkpoints/step_7");
  CHECK_THAT(error_text([&] { checkpoints.load(7, run.toy.adapters, run.optimizer); }),
             Contains("trainer_state.json") && Contains("7, which the folder is named for"));
  fs::rename(folder / "checkpoints/step_7", folder / "checkpoints/step_1");

  fs::remove(folder / "checkpoints/step_1/optimizer.safetensors");
  CHECK_THAT(error_text([&] { checkpoints.load(1, run.toy.adapters, run.optimizer); }),
             Contains("optimizer.safetensors"));
  CHECK_FALSE(error_text([&] { checkpoints.load(7, run.toy.adapters, run.optimizer); }) == "no error");
}

TEST_CASE("a flipped bit in any file of a checkpoint is found and its file named") {
  const TemporaryFolder folder;
  const CheckpointStore checkpoints(folder.path(), "base", 1);
  Run run;
  run.train(1, 3);
  checkpoints.save({.step = 1}, run.toy.adapters, run.optimizer);
  for (const char* name : {"adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors",
                           "trainer_state.json", "manifest.json"}) {
    INFO(name);
    const fs::path file = folder / "checkpoints/step_1" / name;
    const std::string bytes = read_file(file);
    std::string flipped = bytes;
    flipped[bytes.size() / 2] = static_cast<char>(flipped[bytes.size() / 2] ^ 1);
    write_file_atomic(file, flipped);
    CHECK_THAT(error_text([&] { checkpoints.load(1, run.toy.adapters, run.optimizer); }),
               Contains(name) || Contains("its manifest says"));
    write_file_atomic(file, bytes);
  }
  CHECK(checkpoints.load(1, run.toy.adapters, run.optimizer).step == 1);
}

TEST_CASE("a file of another step's checkpoint is found") {
  const TemporaryFolder folder;
  const CheckpointStore checkpoints(folder.path(), "base", std::nullopt);
  Run run;
  for (const std::int64_t step : {1, 2}) {
    run.train(1, static_cast<std::uint64_t>(step));
    checkpoints.save({.step = step}, run.toy.adapters, run.optimizer);
  }
  fs::copy_file(folder / "checkpoints/step_1/optimizer.safetensors",
                folder / "checkpoints/step_2/optimizer.safetensors", fs::copy_options::overwrite_existing);
  CHECK_THAT(error_text([&] { checkpoints.load(2, run.toy.adapters, run.optimizer); }),
             Contains("step_2/optimizer.safetensors") && Contains("damaged or replaced"));
}

TEST_CASE("an output folder that was deleted is not made anew for a checkpoint") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "run");
  const CheckpointStore checkpoints(folder / "run", "base", 1);
  const Run run;
  fs::remove(folder / "run");
  CHECK_THAT(error_text([&] { checkpoints.save({.step = 1}, run.toy.adapters, run.optimizer); },
                        ErrorKind::kRunFailed),
             Contains("deleted while the run was going on"));
  CHECK_FALSE(fs::exists(folder / "run"));
}

TEST_CASE("checkpoints that lack our marker are listed, folders of others and links are not") {
  const TemporaryFolder folder;
  const CheckpointStore checkpoints(folder.path(), "base", std::nullopt);
  const Run run;
  for (const std::int64_t step : {1, 2}) checkpoints.save({.step = step}, run.toy.adapters, run.optimizer);
  CHECK(checkpoints.unmarked().empty());
  fs::remove(folder / "checkpoints/step_2" / io::kMarkerFile);
  fs::create_directory(folder / "checkpoints/step_3");
  fs::create_directory_symlink(folder / "checkpoints/step_2", folder / "checkpoints/step_4");
  CHECK(checkpoints.unmarked() == std::vector<fs::path>{folder / "checkpoints/step_2"});
  CHECK(checkpoints.steps() == Steps{1});
}

TEST_CASE(
    "magnitudes, a frozen A and what is subtracted come back with a checkpoint, in the module's order of "
    "rows") {
  const peft::LoraConfig config{
      .rank = 2, .alpha = 4, .use_dora = true, .starts_from_base = true, .freeze_a = true};
  const TemporaryFolder folder;
  const CheckpointStore checkpoints(folder.path(), "base", 3);
  Run run(config, fused_toy_spec());
  run.train(3, 1);
  checkpoints.save({.step = 3}, run.toy.adapters, run.optimizer);
  Run other(config, fused_toy_spec());
  other.toy.randomize(99);
  checkpoints.load(3, other.toy.adapters, other.optimizer);
  check_equal(run, other);
}
