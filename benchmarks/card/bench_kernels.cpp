// bench_kernels [--tokens N] [--repeats N] [--only TEXT]
//
// Each of our CUDA kernels alone on the first card, without libtorch: microseconds of one run, the bytes
// that it must move (each input read once, each output written once) a second, and that rate's share of what
// a copy from device memory to device memory reaches in the same run. Shapes are those of Llama and Qwen3
// models, of state spaces Granite 4's and Nemotron-H's, with N rows (4,096) where rows are tokens. --only
// takes the kernels whose name contains TEXT. Prints Markdown.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels.h"

namespace {

using namespace lorikeet::bench;

constexpr int kLeastRepeats = 20;

struct Settings {
  std::int64_t tokens = 4096;
  int repeats = 50;
  std::string only;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) throw std::invalid_argument(name + " needs a value");
      return argv[i];
    };
    if (name == "--tokens") {
      settings.tokens = std::stoll(value());
    } else if (name == "--repeats") {
      settings.repeats = std::stoi(value());
    } else if (name == "--only") {
      settings.only = value();
    } else {
      throw std::invalid_argument("expected --tokens, --repeats or --only, got " + name);
    }
  }
  if (settings.tokens < 1 || settings.repeats < kLeastRepeats)
    throw std::invalid_argument("expected at least one token and " + std::to_string(kLeastRepeats) +
                                " repeats");
  return settings;
}

// The name of the first card.
std::string card_name() {
  int cards = 0;
  const cudaError_t status = cudaGetDeviceCount(&cards);
  if (status != cudaSuccess || cards == 0) {
    const std::string why = status != cudaSuccess ? cudaGetErrorString(status) : "no card";
    throw lorikeet::Error("[bench_kernels] expected a CUDA device, found none (" + why + ")",
                          lorikeet::ErrorKind::kRunFailed);
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return properties.name;
}

double gigabytes_per_second(const Case& one, double microseconds) {
  return static_cast<double>(one.bytes) / microseconds / 1e3;
}

void print_row(const Case& one, double microseconds, double copy_rate) {
  const double rate = gigabytes_per_second(one, microseconds);
  std::printf("| %s | %s | %.2f | %lld | %.0f | %.0f%% |\n", one.kernel.c_str(), one.shape.c_str(),
              microseconds, static_cast<long long>(one.bytes), rate, 100 * rate / copy_rate);
  std::fflush(stdout);  // a reader may wait for it, and a later kernel may fail
}

void run(const Settings& settings) {
  std::vector<Case> cases = bf16_kernels(settings.tokens);
  for (Case& one : low_rank_kernels(settings.tokens)) cases.push_back(std::move(one));
  for (Case& one : expert_kernels(settings.tokens)) cases.push_back(std::move(one));
  for (Case& one : state_space_kernels(settings.tokens)) cases.push_back(std::move(one));
  for (Case& one : quantized_kernels(settings.tokens)) cases.push_back(std::move(one));
  std::erase_if(cases, [&](const Case& one) { return one.kernel.find(settings.only) == std::string::npos; });
  if (cases.empty()) throw std::invalid_argument("no kernel's name contains " + settings.only);

  std::printf("%s, bf16, %lld tokens, median of %d repeats.\n\n", card_name().c_str(),
              static_cast<long long>(settings.tokens), settings.repeats);
  std::printf("| kernel | shape | microseconds | bytes that must be moved | GB/s | of the copy's |\n");
  std::printf("|---|---|---|---|---|---|\n");
  const Case copy = device_copy();
  const double of_copy = microseconds(copy, settings.repeats);
  const double copy_rate = gigabytes_per_second(copy, of_copy);
  print_row(copy, of_copy, copy_rate);
  for (const Case& one : cases) print_row(one, microseconds(one, settings.repeats), copy_rate);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_kernels: %s\n", error.what());
    return 1;
  }
  return 0;
}
