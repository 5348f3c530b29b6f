#include "peft/adapter_arithmetic.h"

#include <ATen/ATen.h>

#include <limits>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/random_adapter.h"

using namespace lorikeet;
using namespace lorikeet::peft;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

const std::vector<RandomModule> kModules = {{"layers.0.q"}, {"layers.1.q"}, {"layers.1.up", 4, 9, 2, 5}};

AdapterContents written_and_read(const AdapterContents& adapter) {
  const TemporaryFolder folder;
  write_adapter_contents(folder.path(), adapter);
  return read_adapter_contents(folder.path());
}

}  // namespace

TEST_CASE("the average of an adapter with itself is that adapter") {
  for (const bool rslora : {false, true}) {
    const AdapterContents adapter = random_adapter(1, kModules, DType::kBF16, rslora);
    const AdapterContents average = written_and_read(weighted_sum({adapter, adapter}, {0.5, 0.5}));
    CHECK(average.dtype == DType::kBF16);
    for (const auto& [name, module] : adapter.modules) {
      const AdapterModule& other = average.modules.at(name);
      CHECK(other.update.rank() == 2 * module.update.rank());
      CHECK(relative_distance(dense(other), dense(module)) < 1e-14);
    }
  }
}

TEST_CASE("a weighted sum is the dense one, over adapters of other ranks, scales, modules and dtypes") {
  const AdapterContents a = random_adapter(1, {{"layers.0.q"}, {"layers.1.q"}}, DType::kBF16);
  const AdapterContents b =
      random_adapter(2, {{"layers.0.q", 10, 8, 5, 3}, {"layers.0.up"}}, DType::kF32, true);
  const AdapterContents sum = written_and_read(weighted_sum({a, b}, {0.25, -1.5}));
  CHECK(sum.dtype == DType::kF32);
  CHECK_FALSE(sum.config.use_rslora);
  REQUIRE(sum.names() == std::vector<std::string>{"layers.0.q", "layers.0.up", "layers.1.q"});
  const at::Tensor both = 0.25 * dense(a.modules.at("layers.0.q")) - 1.5 * dense(b.modules.at("layers.0.q"));
  CHECK(sum.modules.at("layers.0.q").update.rank() == 8);
  CHECK(relative_distance(dense(sum.modules.at("layers.0.q")), both) < 1e-6);  // fp32's rounding of B
  CHECK(relative_distance(dense(sum.modules.at("layers.1.q")), 0.25 * dense(a.modules.at("layers.1.q"))) <
        1e-14);
  CHECK(relative_distance(dense(sum.modules.at("layers.0.up")), -1.5 * dense(b.modules.at("layers.0.up"))) <
        1e-14);

  const auto absent = absent_modules({a, b});
  REQUIRE(absent.size() == 2);
  CHECK(absent[0].name == "layers.0.up");
  CHECK(absent[0].lacking == std::vector<std::size_t>{0});
  CHECK(absent[1].name == "layers.1.q");
  CHECK(absent[1].lacking == std::vector<std::size_t>{1});
}

TEST_CASE("a sum's targets are names that choose its modules and no others") {
  AdapterContents a = random_adapter(1, {{"layers.0.q"}, {"layers.1.q"}});
  AdapterContents b = random_adapter(2, {{"layers.0.up"}});
  a.config.target_modules = {"q"};
  CHECK(weighted_sum({a, b}, {1, 1}).config.target_modules == std::vector<std::string>{"layers.0.up", "q"});
  const std::vector<std::string> whole = {"layers.0.q", "layers.0.up", "layers.1.q"};
  b.config.exclude_modules = {"layers.1.up"};
  const AdapterContents sum = weighted_sum({a, b}, {1, 1});
  CHECK(sum.config.target_modules == whole);
  CHECK(sum.config.exclude_modules.empty());
  b.config = a.config;
  b.config.target_modules = {".*up"};
  CHECK(weighted_sum({a, b}, {1, 1}).config.target_modules == whole);
  b.config.target_modules = {"up"};
  b.config.layers_to_transform = {0};
  CHECK(weighted_sum({a, b}, {1, 1}).config.target_modules == whole);
}

TEST_CASE("an adapter times 2, then times a half, is the adapter to the bit") {
  const AdapterContents adapter = random_adapter(5, kModules, DType::kBF16, true);
  for (const double factor : {2.0, -2.0}) {
    const AdapterContents once = written_and_read(scaled(adapter, factor));
    const AdapterContents twice = written_and_read(scaled(once, 1 / factor));
    for (const auto& [name, module] : adapter.modules) {
      CHECK(relative_distance(dense(once.modules.at(name)), factor * dense(module)) < 1e-14);
      CHECK(at::equal(twice.modules.at(name).update.a, module.update.a));
      CHECK(at::equal(twice.modules.at(name).update.b, module.update.b));
      CHECK(twice.modules.at(name).alpha == module.alpha);
      CHECK(twice.modules.at(name).update.scale == module.update.scale);
    }
  }
}

TEST_CASE("to the full rank nothing is shrunk, to the bit") {
  const AdapterContents adapter = random_adapter(6, kModules, DType::kF32, true);
  const Shrunk same = shrunk(adapter, 3, std::nullopt);
  CHECK(total_loss(same.modules).lost_share() == 0);
  for (const auto& [name, module] : adapter.modules) {
    const AdapterModule& other = same.adapter.modules.at(name);
    CHECK(at::equal(other.update.a, module.update.a));
    CHECK(at::equal(other.update.b, module.update.b));
    CHECK(other.alpha / static_cast<double>(other.update.rank()) == Approx(module.update.scale));
  }
}

TEST_CASE("a shrunk adapter loses the least that its rank allows, and says how much") {
  const AdapterContents adapter = random_adapter(6, kModules);
  const Shrunk low = shrunk(adapter, 1, std::nullopt);
  const AdapterContents read = written_and_read(low.adapter);
  double lost = 0, norm = 0;
  REQUIRE(low.modules.size() == 3);
  for (const RankLoss& loss : low.modules) {
    const at::Tensor whole = dense(adapter.modules.at(loss.module));
    const at::Tensor values = at::linalg_svdvals(whole);
    const double bound = values.narrow(0, 1, values.size(0) - 1).norm().item<double>();
    CHECK(loss.rank_after == 1);
    CHECK(loss.lost_norm == Approx(bound));
    CHECK(loss.norm == Approx(whole.norm().item<double>()));
    CHECK((dense(read.modules.at(loss.module)) - whole).norm().item<double>() == Approx(bound).epsilon(1e-6));
    CHECK(read.modules.at(loss.module).update.scale == Approx(adapter.modules.at(loss.module).update.scale));
    lost += bound * bound;
    norm += loss.norm * loss.norm;
  }
  CHECK(total_loss(low.modules).lost_share() == Approx(std::sqrt(lost / norm)));
}

TEST_CASE("a share to keep gives each module the least rank that holds it") {
  AdapterContents adapter = random_adapter(7, {{"layers.0.q"}, {"layers.1.q"}});
  AdapterModule& module = adapter.modules.at("layers.1.q");
  module.update.b.select(1, 0).mul_(1e4);  // next to all of it in one direction
  const Shrunk low = shrunk(adapter, std::nullopt, 0.999999);
  CHECK(low.adapter.modules.at("layers.0.q").update.rank() == 3);
  CHECK(low.adapter.modules.at("layers.1.q").update.rank() == 1);
  CHECK(total_loss(low.modules).lost_share() <= 1e-3);
}

TEST_CASE("a flattened adapter is the same with one rank and one alpha, and its file has no patterns") {
  for (const bool rslora : {false, true}) {
    const std::vector<RandomModule> modules = {
        {"layers.0.q"}, {"layers.0.up"}, {"layers.1.q", 10, 8, 5, 7}, {"layers.1.up", 4, 9, 2, 1}};
    const AdapterContents adapter = random_adapter(10, modules, DType::kF64, rslora);
    const AdapterContents flat = written_and_read(flattened(adapter, std::nullopt));
    CHECK(flat.config.rank == 5);
    CHECK(flat.config.rank_pattern.empty());
    CHECK(flat.config.alpha_pattern.empty());
    CHECK_FALSE(flat.config.use_rslora);
    for (const auto& [name, module] : adapter.modules) {
      CAPTURE(name, rslora);
      const AdapterModule& other = flat.modules.at(name);
      CHECK(other.update.rank() == 5);
      CHECK(relative_distance(dense(other), dense(module)) < 1e-14);
    }
    // Most modules have this one's scale.
    const LowRankUpdate &before = adapter.modules.at("layers.0.q").update,
                        &after = flat.modules.at("layers.0.q").update;
    CHECK(after.scale == Approx(before.scale).epsilon(1e-15));
    CHECK(at::equal(after.a, at::cat({before.a, at::zeros({2, 8}, at::kDouble)}, 0)));
    CHECK(at::equal(after.b, at::cat({before.b, at::zeros({10, 2}, at::kDouble)}, 1)));
    CHECK(flattened(adapter, 8).modules.at("layers.1.q").update.rank() == 8);
    CHECK_THAT(error_text([&] { flattened(adapter, 4); }),
               Contains("a rank of at least 5") && Contains("got 4"));
  }
}

TEST_CASE("magnitudes, embeddings and trained copies stay in a flattened adapter") {
  AdapterContents adapter = random_adapter(11, {{"q"}, {"embed", 12, 6, 2, 5}});
  adapter.modules.at("embed").is_embedding = true;
  adapter.config.use_dora = true;
  adapter.modules.at("q").magnitude = at::rand({10}, at::kDouble);
  adapter.modules.at("embed").magnitude = at::rand({6}, at::kDouble);
  adapter.config.modules_to_save = {"lm_head"};
  adapter.saved["lm_head.weight"] = at::full({3, 2}, 4, at::kDouble);
  const AdapterContents flat = written_and_read(flattened(adapter, std::nullopt));
  CHECK(flat.config.use_dora);
  CHECK(flat.config.rank_pattern.empty());
  CHECK(flat.modules.at("embed").is_embedding);
  CHECK(at::equal(flat.saved.at("lm_head.weight"), adapter.saved.at("lm_head.weight")));
  for (const auto& [name, module] : adapter.modules) {
    CHECK(relative_distance(dense(flat.modules.at(name)), dense(module)) < 1e-6);  // fp32's rounding of B
    CHECK(relative_distance(flat.modules.at(name).magnitude, module.magnitude) < 1e-6);
  }
}

TEST_CASE("an average brought back to the rank of equal adapters is that adapter") {
  const AdapterContents adapter = random_adapter(8, kModules);
  const Shrunk back = shrunk(weighted_sum({adapter, adapter}, {0.5, 0.5}), 3, std::nullopt);
  CHECK(total_loss(back.modules).lost_share() < 1e-12);
  for (const auto& [name, module] : adapter.modules)
    CHECK(relative_distance(dense(back.adapter.modules.at(name)), dense(module)) < 1e-12);
}

TEST_CASE("an adapter that changes nothing can be averaged and shrunk") {
  AdapterContents adapter = random_adapter(9, {{"q"}});
  adapter.modules.at("q").update.b.zero_();
  const Shrunk low = shrunk(weighted_sum({adapter, adapter}, {0.5, 0.5}), 2, std::nullopt);
  CHECK(total_loss(low.modules).lost_share() == 0);
  CHECK(written_and_read(low.adapter).modules.at("q").update.rank() == 2);
}

TEST_CASE("an embedding's factors are averaged, shrunk and scaled as a linear module's are") {
  AdapterContents a = random_adapter(1, {{"embed", 12, 6}}), b = random_adapter(2, {{"embed", 12, 6, 2, 5}});
  a.modules.at("embed").is_embedding = b.modules.at("embed").is_embedding = true;
  const at::Tensor both = 0.25 * dense(a.modules.at("embed")) - 1.5 * dense(b.modules.at("embed"));
  const AdapterContents sum = written_and_read(weighted_sum({a, b}, {0.25, -1.5}));
  CHECK(sum.modules.at("embed").is_embedding);
  CHECK(sum.modules.at("embed").update.rank() == 5);
  CHECK(relative_distance(dense(sum.modules.at("embed")), both) < 1e-6);  // fp32's rounding of B
  const AdapterModule low = written_and_read(shrunk(sum, 2, std::nullopt).adapter).modules.at("embed");
  const at::Tensor values = at::linalg_svdvals(both);
  CHECK(low.is_embedding);
  CHECK((dense(low) - both).norm().item<double>() ==
        Approx(values.narrow(0, 2, 4).norm().item<double>()).epsilon(1e-5));
  CHECK(relative_distance(dense(written_and_read(scaled(sum, -2)).modules.at("embed")), -2 * both) < 1e-6);
  AdapterContents linear = b;
  linear.modules.at("embed").is_embedding = false;
  CHECK_THAT(error_text([&] { weighted_sum({a, linear}, {1, 1}); }), Contains("adapters of one base model"));
}

TEST_CASE("trained copies are averaged linearly and kept by a lower rank") {
  AdapterContents a = random_adapter(1, {{"q"}}), b = random_adapter(2, {{"q"}});
  a.config.modules_to_save = b.config.modules_to_save = {"lm_head"};
  a.saved["lm_head.weight"] = at::full({3, 2}, 4, at::kDouble);
  b.saved["lm_head.weight"] = at::full({3, 2}, 8, at::kDouble);
  const AdapterContents sum = written_and_read(weighted_sum({a, b}, {1.25, -0.25}));
  CHECK(at::equal(sum.saved.at("lm_head.weight"), at::full({3, 2}, 3, at::kDouble)));
  CHECK(at::equal(a.saved.at("lm_head.weight"), at::full({3, 2}, 4, at::kDouble)));
  CHECK(
      at::equal(shrunk(a, 1, std::nullopt).adapter.saved.at("lm_head.weight"), a.saved.at("lm_head.weight")));
  CHECK(at::equal(scaled(a, 1).saved.at("lm_head.weight"), a.saved.at("lm_head.weight")));

  CHECK_THAT(error_text([&] { weighted_sum({a, b}, {1, 1}); }), Contains("a sum of 2"));
  CHECK_THAT(error_text([&] { weighted_sum({a, random_adapter(2, {{"q"}})}, {0.5, 0.5}); }),
             Contains("got adapter 2 without it"));
  CHECK_THAT(error_text([&] { scaled(a, 0.5); }), Contains("a copy of 'lm_head.weight'"));
  b.saved["lm_head.weight"] = at::ones({4, 2}, at::kDouble);
  CHECK_THAT(error_text([&] { weighted_sum({a, b}, {0.5, 0.5}); }), Contains("in two shapes"));
}

TEST_CASE("files with tables of two bases aren't averaged") {
  AdapterContents a = random_adapter(1, {{"embed", 12, 6}}), b = a;
  a.base_tables["embed"] = at::full({12, 6}, 1.001, at::kFloat);
  b.base_tables["embed"] = a.base_tables["embed"].to(at::kBFloat16);
  const AdapterContents sum = weighted_sum({a, b}, {0.5, 0.5});
  CHECK(at::equal(sum.base_tables.at("embed"), a.base_tables.at("embed")));
  b.base_tables["embed"] = at::full({12, 6}, 2, at::kFloat);
  CHECK_THAT(error_text([&] { weighted_sum({a, b}, {0.5, 0.5}); }), Contains("different tables of the base"));
}

TEST_CASE("what can't be computed is one clear error") {
  const AdapterContents adapter = random_adapter(1, {{"q"}});
  AdapterContents dora = adapter;
  dora.config.use_dora = true;
  CHECK_THAT(error_text([&] { scaled(dora, 2); }), Contains("use_dora"));
  CHECK_THAT(error_text([&] { shrunk(dora, 1, std::nullopt); }), Contains("use_dora"));
  CHECK_THAT(error_text([&] { weighted_sum({adapter, dora}, {1, 1}); }), Contains("use_dora"));
  for (const double factor :
       {0.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    CHECK_THAT(error_text([&] { scaled(adapter, factor); }), Contains("a factor that is finite and not 0"));
    CHECK_THAT(error_text([&] { weighted_sum({adapter}, {factor}); }),
               Contains("a weight that is finite and not 0"));
  }
  for (const double factor : {-1e9, 3e5})
    CHECK_THAT(error_text([&] { scaled(adapter, factor); }),
               Contains("a factor that leaves every alpha above 0 and at most 1e+06") && Contains("'q'"));
  CHECK_THAT(error_text([&] { weighted_sum({adapter}, {1, 1}); }), Contains("got 2 for 1"));
  const AdapterContents before = random_adapter(1, {{"language_model.model.layers.0.q"}, {"lm_head"}});
  const AdapterContents after = random_adapter(2, {{"model.language_model.layers.1.q"}, {"lm_head"}});
  CHECK_THAT(error_text([&] { weighted_sum({adapter, before, after}, {1, 1, 1}); }),
             Contains("got 'language_model.model.layers' and, in adapter 3, 'model.language_model.layers'"));
  CHECK_THAT(error_text([&] { weighted_sum({adapter, before, before}, {1, 1, 1}); }), Contains("no error"));
  CHECK_THAT(error_text([&] { weighted_sum({adapter, random_adapter(2, {{"q", 10, 9}})}, {1, 1}); }),
             Contains("[10, 8] in one and [10, 9] in another"));
  CHECK_THAT(error_text([&] { shrunk(adapter, 0, std::nullopt); }), Contains("a rank from 1 on"));
  CHECK_THAT(error_text([&] { shrunk(adapter, std::nullopt, 1.5); }), Contains("above 0 and at most 1"));
  CHECK_THAT(error_text([&] { shrunk(adapter, std::nullopt, std::nullopt); }), Contains("got neither"));
}
