#include "probe/product_rates.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "probe/rates_file.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using ops::HalfProducts;

namespace {

const ProductJob kJob{.dtype = at::kBFloat16,
                      .tokens = 64,
                      .rank = 4,
                      .products = {{.out = 192, .in = 128, .count = 2, .projections = 3},
                                   {.out = 300, .in = 128, .projections = 0}}};
const ProductRates kRates{.native = 1.5e11, .widened = 3e11, .native_over_widened = 0.5};

// A variable's value for as long as the object lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

// A root with a CPU of this model's name.
void write_cpu(const test::TemporaryFolder& root, const std::string& model) {
  std::filesystem::create_directories(root / "proc");
  std::ofstream(root / "proc/cpuinfo") << "processor\t: 0\nvendor_id\t: Maker\nmodel name\t: " << model
                                       << "\nbogomips\t: 1\n\nprocessor\t: 1\nmodel name\t: other\n";
}

}  // namespace

TEST_CASE("measuring gives both ways' rates and leaves the choice as it was") {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const bool backward : {false, true}) {
      for (const HalfProducts before : {HalfProducts::kByFeature, HalfProducts::kWidened}) {
        ops::set_half_products(before);
        ProductJob job = kJob;
        job.dtype = dtype;
        job.backward = backward;
        const ProductRates rates = measure_products(job);
        CHECK(rates.native > 0);
        CHECK(rates.widened > 0);
        CHECK(rates.native_over_widened > 0);
        CHECK(ops::half_products() == before);
      }
    }
  }
  ops::set_half_products(HalfProducts::kByFeature);
}

TEST_CASE("only products of 16-bit matrices can be measured") {
  ProductJob none = kJob, wide = kJob, empty = kJob;
  none.products.clear();
  wide.dtype = at::kFloat;
  empty.tokens = 0;
  for (const ProductJob& job : {none, wide, empty})
    CHECK_THAT(test::error_text([&] { measure_products(job); }),
               Catch::Contains("products of 16-bit matrices"));
}

TEST_CASE("the faster way is taken, and the usual one where they are equal but for noise") {
  const auto faster = [](double ratio, HalfProducts usual) {
    return faster_products({.native = 1, .widened = 1, .native_over_widened = ratio}, usual);
  };
  for (const HalfProducts usual : {HalfProducts::kNative, HalfProducts::kWidened}) {
    CHECK(faster(1.1, usual) == HalfProducts::kNative);
    CHECK(faster(0.9, usual) == HalfProducts::kWidened);
    CHECK(faster(1.01, usual) == usual);
    CHECK(faster(0.99, usual) == usual);
  }
}

TEST_CASE("rates that were kept are found again, for the same machine and job alone") {
  const test::TemporaryFolder cache, cpu, other;
  const Variable variable("XDG_CACHE_HOME", cache.path().string());
  write_cpu(cpu, "Fast 1");
  write_cpu(other, "Fast 2");
  const Json key = rates_key(kJob, cpu.path());
  CHECK_THAT(key.dump(),
             Catch::Contains("Fast 1") && !Catch::Contains("bogomips") && !Catch::Contains("other"));
  const auto file = rates_file(key);
  REQUIRE(file);
  CHECK(file->parent_path() == cache / "lorikeet/products");
  CHECK_FALSE(load_rates(*file, key));
  save_rates(*file, key, kRates);
  CHECK(load_rates(*file, key) == kRates);

  ProductJob more_rank = kJob, forward = kJob, half = kJob, deeper = kJob;
  more_rank.rank = 8;
  forward.backward = false;
  half.dtype = at::kHalf;
  deeper.products[0].count = 3;
  std::vector<Json> others{rates_key(kJob, other.path())};
  for (const ProductJob& job : {more_rank, forward, half, deeper})
    others.push_back(rates_key(job, cpu.path()));
  {
    const Variable limited("ONEDNN_MAX_CPU_ISA", "AVX2");
    others.push_back(rates_key(kJob, cpu.path()));
  }
  const int threads = at::get_num_threads();
  at::set_num_threads(threads + 1);
  others.push_back(rates_key(kJob, cpu.path()));
  at::set_num_threads(threads);
  for (const Json& one : others) {
    INFO(one.dump());
    CHECK(rates_file(one) != file);
    CHECK_FALSE(load_rates(*file, one));  // not even under the other's name
  }
  CHECK(rates_file(rates_key(kJob, cpu.path())) == file);
  // What is beyond the measured tokens is measured alike.
  ProductJob long_job = kJob, longer = kJob;
  long_job.tokens = kMostMeasuredTokens;
  longer.tokens = 4 * kMostMeasuredTokens;
  CHECK(rates_file(rates_key(long_job)) == rates_file(rates_key(longer)));
}

TEST_CASE("a damaged file of rates is as good as none, and is written anew") {
  const test::TemporaryFolder folder;
  const auto file = folder / "rates.json";
  const Json key = rates_key(kJob);
  save_rates(file, key, kRates);
  const std::string good = read_file(file);
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    const std::size_t at = text.find(what);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), by);
  };
  for (const std::string& bad :
       {std::string(), std::string("{}"), std::string("[1]"), good.substr(0, good.size() / 2), good + "x",
        replaced("native_flops_per_second\": 1", "native_flops_per_second\": -1"),
        replaced("native_over_widened\": 0.5", "native_over_widened\": \"half\""),
        replaced("native_over_widened\": 0.5", "native_over_widened\": 0"),
        replaced("native_over_widened", "other"), replaced("\"tokens\": 64", "\"tokens\": 65")}) {
    INFO(bad);
    std::ofstream(file) << bad;
    CHECK_FALSE(load_rates(file, key));
    save_rates(file, key, kRates);
    CHECK(load_rates(file, key) == kRates);
  }
}

TEST_CASE("rates that can't be kept are an error, with the file's name") {
  CHECK_THAT(test::error_text([] { save_rates("/proc/self/products/rates.json", rates_key(kJob), kRates); },
                              ErrorKind::kEnvironment),
             Catch::Contains("/proc/self/products/rates.json"));
}
