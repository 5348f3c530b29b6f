#include "peft/adapter_measures.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "peft/adapter_arithmetic.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/random_adapter.h"

using namespace lorikeet;
using namespace lorikeet::peft;
using namespace lorikeet::test;
using Catch::Contains;

TEST_CASE("modules are measured as their dense updates are, from the largest down") {
  const AdapterContents adapter = random_adapter(
      1, {{"layers.0.q", 10, 8, 3, 1}, {"layers.1.q", 10, 8, 3, 50}, {"layers.10.up", 4, 9, 2, 7}, {"head"}});
  const std::vector<ModuleMeasures> modules = measure(adapter);
  REQUIRE(modules.size() == 4);
  CHECK(modules[0].name == "layers.1.q");
  CHECK(modules[3].name == "layers.0.q");
  double squares = 0;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const ModuleMeasures& one = modules[i];
    const AdapterModule& module = adapter.modules.at(one.name);
    CHECK((i == 0 || one.frobenius_norm <= modules[i - 1].frobenius_norm));
    CHECK(one.frobenius_norm == Approx(dense(module).norm().item<double>()));
    CHECK(one.spectral_norm == Approx(at::linalg_svdvals(dense(module))[0].item<double>()));
    CHECK(one.norm_a == Approx(module.update.a.norm().item<double>()));
    CHECK(one.norm_b == Approx(module.update.b.norm().item<double>()));
    CHECK(one.alpha == module.alpha);
    CHECK(one.scale == module.update.scale);
    squares += one.frobenius_norm * one.frobenius_norm;
  }
  CHECK(total(modules).frobenius_norm == Approx(std::sqrt(squares)));
  CHECK(total(modules).modules == 4);

  const auto kinds = totals_by_kind(modules);
  REQUIRE(kinds.size() == 3);
  CHECK(kinds[0].name == "q");
  CHECK(kinds[0].modules == 2);
  CHECK(kinds[0].frobenius_norm == Approx(std::hypot(modules[0].frobenius_norm, modules[3].frobenius_norm)));
  const auto layers = totals_by_layer(modules);  // the head has none
  REQUIRE(layers.size() == 3);
  CHECK(layers[1].name == "1");
  CHECK(layers[2].name == "10");
}

TEST_CASE("an adapter doesn't differ from itself") {
  const AdapterContents adapter = random_adapter(2, {{"layers.0.q"}, {"layers.1.q"}});
  const AdapterDifference same = difference(adapter, adapter);
  CHECK(same.equal());
  CHECK(same.total.distance == 0);
  CHECK(same.total.cosine() == Approx(1));
}

TEST_CASE("two adapters differ as their dense updates do") {
  const AdapterContents a = random_adapter(3, {{"layers.0.q"}, {"layers.1.q"}, {"layers.2.q"}});
  AdapterContents b = random_adapter(4, {{"layers.0.q", 10, 8, 5, 2}, {"layers.1.q"}, {"layers.3.q"}});
  b.base_model = "another";
  const AdapterDifference found = difference(a, b);
  CHECK_FALSE(found.equal());
  REQUIRE(found.modules.size() == 2);
  double squares = 0;
  for (const ModuleDifference& one : found.modules) {
    const at::Tensor x = dense(a.modules.at(one.name)), y = dense(b.modules.at(one.name));
    const double distance = (x - y).norm().item<double>();
    CHECK(one.distance == Approx(distance));
    CHECK(one.relative_distance() == Approx(distance / x.norm().item<double>()));
    CHECK(one.cosine() == Approx(((x * y).sum() / (x.norm() * y.norm())).item<double>()));
    squares += distance * distance;
  }
  CHECK(found.modules[0].distance >= found.modules[1].distance);
  CHECK(found.only_a == std::vector<std::string>{"layers.2.q"});
  CHECK(found.only_b == std::vector<std::string>{"layers.3.q"});
  squares += dense(a.modules.at("layers.2.q")).square().sum().item<double>() +
             dense(b.modules.at("layers.3.q")).square().sum().item<double>();
  CHECK(found.total.distance == Approx(std::sqrt(squares)));
  std::string keys;
  for (const SettingDifference& one : found.settings) keys += one.key + " ";
  CHECK(keys == "alpha_pattern base_model_name_or_path rank_pattern target_modules ");
}

TEST_CASE("opposite adapters have cosine -1, and equal updates of other factors no distance") {
  const AdapterContents adapter = random_adapter(5, {{"q"}});
  CHECK(difference(adapter, scaled(adapter, -0.5)).total.cosine() == Approx(-1));
  const AdapterDifference doubled = difference(adapter, weighted_sum({adapter, adapter}, {0.5, 0.5}));
  CHECK_FALSE(doubled.total.same_values);
  CHECK(doubled.total.relative_distance() < 1e-12);
  AdapterContents zero = adapter;
  zero.modules.at("q").update.b = at::zeros_like(zero.modules.at("q").update.b);
  CHECK(std::isnan(difference(zero, adapter).total.cosine()));
  CHECK(std::isinf(difference(zero, adapter).total.relative_distance()));
  CHECK(difference(zero, zero).total.relative_distance() == 0);
}

TEST_CASE("DoRA's magnitudes are measured and compared too") {
  AdapterContents a = random_adapter(6, {{"q"}});
  a.config.use_dora = true;
  a.modules.at("q").magnitude = at::full({10}, 2, at::kDouble);
  AdapterContents b = a;
  b.modules.at("q").magnitude = at::full({10}, 3, at::kDouble);
  CHECK(measure(a)[0].magnitude_norm.value() == Approx(2 * std::sqrt(10)));
  const AdapterDifference found = difference(a, b);
  CHECK_FALSE(found.equal());
  CHECK(found.modules[0].distance == 0);
  CHECK(found.modules[0].magnitude_distance.value() == Approx(0.5));
  CHECK(difference(a, a).equal());
}

TEST_CASE("trained copies are listed and compared whole") {
  AdapterContents a = random_adapter(7, {{"q"}});
  a.saved["lm_head.weight"] = at::full({2, 8}, 3, at::kDouble);
  AdapterContents b = a;
  REQUIRE(measure_saved(a).size() == 1);
  CHECK(measure_saved(a)[0].shape == std::vector<std::int64_t>{2, 8});
  CHECK(measure_saved(a)[0].frobenius_norm == Approx(12));
  CHECK(difference(a, b).equal());
  b.saved["lm_head.weight"] = at::full({2, 8}, 2, at::kDouble);
  b.saved["embed.weight"] = at::ones({2, 8}, at::kDouble);
  const AdapterDifference found = difference(a, b);
  CHECK_FALSE(found.same_values());
  CHECK(found.total.same_values);
  REQUIRE(found.saved.size() == 1);
  CHECK(found.saved[0].distance == Approx(4));
  CHECK(found.saved[0].cosine() == Approx(1));
  CHECK(found.only_b == std::vector<std::string>{"embed.weight"});
  b.saved["lm_head.weight"] = at::ones({3, 8}, at::kDouble);
  CHECK_THAT(error_text([&] { difference(a, b); }), Contains("in two shapes"));
}

TEST_CASE("settings that one file alone has differ too") {
  AdapterContents a = random_adapter(7, {{"q"}}), b = a;
  b.config.ensure_weight_tying = true;
  for (const bool swapped : {false, true}) {
    const auto settings = (swapped ? difference(b, a) : difference(a, b)).settings;
    REQUIRE(settings.size() == 1);
    CHECK(settings[0].key == "ensure_weight_tying");
    CHECK((swapped ? settings[0].b : settings[0].a).is_null());
  }
}

TEST_CASE("weights of two shapes can't be compared") {
  CHECK_THAT(error_text([] { difference(random_adapter(1, {{"q"}}), random_adapter(1, {{"q", 10, 9}})); }),
             Contains("adapters of one base model"));
}
