// bench_loading FOLDER [--threads N] [--repeats N]
//
// What hashing every byte of a checkpoint adds to loading it: the base of FOLDER is loaded to bf16 on the CPU
// with and without it, in turn, from a cold page cache (its files' pages are dropped before) and from a warm
// one; and the rate of hashing alone, from a warm one. Prints rows of Markdown.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "io/checkpoint.h"
#include "models/loading.h"
#include "models/registry.h"

namespace {

namespace fs = std::filesystem;
using namespace lorikeet;

// Of the clock, and of all threads' work.
struct Seconds {
  double wall, cpu;
};

Seconds seconds_of(const std::function<void()>& work) {
  const std::clock_t cpu = std::clock();
  const auto begin = std::chrono::steady_clock::now();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
          static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC};
}

// Of the runs that other work on the machine disturbed least.
Seconds least(const std::vector<Seconds>& values) {
  Seconds found = values.front();
  for (const Seconds& one : values) found = {std::min(found.wall, one.wall), std::min(found.cpu, one.cpu)};
  return found;
}

// The kernel forgets what it holds of these files; dirty pages, which it keeps, are written first.
void drop_from_cache(const fs::path& folder) {
  const io::Checkpoint checkpoint = io::Checkpoint::open(folder);
  for (const io::SafetensorsFile& file : checkpoint.files()) {
    const UniqueFd fd(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
    sync_path(file.path());
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

Seconds load_seconds(const fs::path& folder, const nn::CausalLMSpec& spec, bool digest) {
  nn::FrozenFactory factory{precision::Policy{}};
  nn::CausalLM model(spec, factory);
  const io::Checkpoint checkpoint = io::Checkpoint::open(folder);
  return seconds_of([&] {
    model.store().allocate(at::kCPU);
    if (digest) {
      models::load_and_digest_weights(model, checkpoint);
    } else {
      models::load_weights(model, checkpoint);
    }
  });
}

void bench_loads(const fs::path& folder, const nn::CausalLMSpec& spec, int repeats, bool cold) {
  std::vector<Seconds> all_without, all_with;
  for (int i = 0; i < repeats; ++i) {
    for (const bool digest : {false, true}) {
      if (cold) drop_from_cache(folder);
      (digest ? all_with : all_without).push_back(load_seconds(folder, spec, digest));
    }
  }
  const Seconds without = least(all_without), with = least(all_with);
  std::printf("| %d | %s | %.3f | %.3f | %+.3f | %.3f | %.3f | %+.3f |\n", at::get_num_threads(),
              cold ? "cold" : "warm", without.wall, with.wall, with.wall - without.wall, without.cpu,
              with.cpu, with.cpu - without.cpu);
}

// Hashes all blocks of all tensors, which are mapped and read before, and prints the rates.
void bench_hashing(const fs::path& folder, int repeats) {
  const io::Checkpoint checkpoint = io::Checkpoint::open(folder);
  struct Block {
    const io::TensorView* tensor;
    std::size_t number;
  };
  std::vector<Block> blocks;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    for (std::size_t i = 0; i * io::TensorDigest::kBlockBytes < tensor->bytes.size(); ++i)
      blocks.push_back({tensor, i});
  }
  std::vector<io::TensorDigest> digests(blocks.size());
  const auto hash_all = [&] {
    at::parallel_for(0, std::ssize(blocks), 1, [&](std::int64_t from, std::int64_t to) {
      for (auto i = static_cast<std::size_t>(from); i < static_cast<std::size_t>(to); ++i)
        digests[i].add_block(*blocks[i].tensor, blocks[i].number);
    });
  };
  hash_all();
  std::vector<Seconds> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of(hash_all));
  const double gigabytes = static_cast<double>(checkpoint.total_bytes()) / 1e9;
  const Seconds best = least(seconds);
  std::printf("hashing alone, %d threads: %.1f GB a second, %.1f GB a second of CPU\n\n",
              at::get_num_threads(), gigabytes / best.wall, gigabytes / best.cpu);
}

int run(const std::vector<std::string>& arguments) {
  fs::path folder;
  int repeats = 5;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size();
    if (arguments[i] == "--threads" && has_value) {
      at::set_num_threads(std::stoi(arguments[++i]));
    } else if (arguments[i] == "--repeats" && has_value) {
      repeats = std::stoi(arguments[++i]);
    } else {
      folder = arguments[i];
    }
  }
  if (folder.empty() || repeats < 1) {
    std::fputs("usage: bench_loading FOLDER [--threads N] [--repeats N]\n", stderr);
    return 2;
  }
  const Json config = models::read_config_json(folder);
  const nn::CausalLMSpec spec = models::model_spec(JsonView(config, "config.json"));
  bench_hashing(folder, repeats);
  std::puts(
      "| threads | page cache | load s | and hash s | added s | load CPU s | and hash CPU s | added CPU s |");
  std::puts("|---|---|---|---|---|---|---|---|");
  for (const bool cold : {true, false}) bench_loads(folder, spec, repeats, cold);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
