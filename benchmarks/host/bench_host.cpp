// bench_host FOLDER [--tokens N] [--rank N] [--repeats N] [--calls]
//
// What a training micro-step costs the host of a GPU: passes without data (tests/support/dry_pass.h) over the
// model of FOLDER/config.json. Prints a micro-step's milliseconds (median, least and most of the repeats)
// and, by the difference to a model of four layers, a layer's microseconds and calls of libtorch's operators,
// with --calls each of these. Launches aren't in it: a driver takes a few microseconds for each.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "models/registry.h"
#include "support/dry_pass.h"

namespace {

using namespace lorikeet;
using test::DryPass;

struct Settings {
  std::string folder;
  std::int64_t tokens = 2048, rank = 16;
  int repeats = 100;
  bool calls = false;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto number = [&] {
      if (++i == argc) throw std::invalid_argument(name + " needs a number");
      return std::stoi(argv[i]);
    };
    if (name == "--tokens") {
      settings.tokens = number();
    } else if (name == "--rank") {
      settings.rank = number();
    } else if (name == "--repeats") {
      settings.repeats = number();
    } else if (name == "--calls") {
      settings.calls = true;
    } else {
      settings.folder = name;
    }
  }
  if (settings.folder.empty() || settings.repeats < 1)
    throw std::invalid_argument("expected a folder with a config.json, and at least one repeat");
  return settings;
}

struct Figures {
  std::vector<double> seconds;  // ascending
  DryPass::Calls calls;

  double median() const { return seconds[seconds.size() / 2]; }
};

Figures measure(const nn::CausalLMSpec& spec, const Settings& settings) {
  DryPass pass(spec, settings.tokens, settings.rank);
  Figures figures{.calls = pass.calls()};
  for (int i = 0; i < settings.repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    pass.step();
    figures.seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(figures.seconds.begin(), figures.seconds.end());
  return figures;
}

void run(const Settings& settings) {
  constexpr std::size_t kFew = 4;
  const Json config = models::read_config_json(settings.folder);
  nn::CausalLMSpec spec = models::model_spec(JsonView(config, settings.folder + "/config.json"));
  if (spec.layers.size() <= kFew) throw std::invalid_argument("expected a model of more than four layers");
  const std::size_t fewer = spec.layers.size() - kFew;
  const Figures all = measure(spec, settings);
  spec.layers.resize(kFew);
  const Figures few = measure(spec, settings);

  std::printf("micro-step: %.2f ms (%.2f to %.2f)\n", 1e3 * all.median(), 1e3 * all.seconds.front(),
              1e3 * all.seconds.back());
  double total = 0;
  std::vector<std::pair<double, std::string>> by_count;
  for (const auto& [name, count] : test::calls_of_layer(all.calls, few.calls, fewer)) {
    total += count;
    by_count.emplace_back(count, name);
  }
  std::printf("a layer: %.1f us, %.0f calls of libtorch's operators\n",
              1e6 * (all.median() - few.median()) / static_cast<double>(fewer), total);
  if (!settings.calls) return;
  std::sort(by_count.rbegin(), by_count.rend());
  for (const auto& [count, name] : by_count) std::printf("  %6.1f %s\n", count, name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_host: %s\n", error.what());
    return 2;
  }
}
