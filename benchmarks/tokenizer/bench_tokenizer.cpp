// bench_tokenizer FOLDER THREADS < lines
// Reads JSON strings, one a line, then for every line on stdin that says "run" after the empty line encodes
// them all once and prints the seconds. Driven by run.py, which interleaves it with the `tokenizers` package.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace {

std::size_t encode_all(const lorikeet::text::Tokenizer& tokenizer, const std::vector<std::string>& texts,
                       unsigned threads) {
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> tokens{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < texts.size(); i = next++) tokens += tokenizer.encode(texts[i]).size();
  };
  std::vector<std::jthread> helpers;
  for (unsigned i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw lorikeet::Error("[bench_tokenizer] expected FOLDER THREADS");
    const auto start = std::chrono::steady_clock::now();
    const auto tokenizer = lorikeet::text::load_tokenizer(argv[1]);
    const std::chrono::duration<double> load = std::chrono::steady_clock::now() - start;
    const auto threads = static_cast<unsigned>(std::atoi(argv[2]));
    std::vector<std::string> texts;
    for (std::string line; std::getline(std::cin, line) && !line.empty();) {
      texts.push_back(lorikeet::Json::parse(line, "stdin").string());
    }
    std::cout << load.count() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      const auto before = std::chrono::steady_clock::now();
      const std::size_t tokens = encode_all(*tokenizer, texts, threads);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
      std::cout << took.count() << ' ' << tokens << std::endl;
    }
    return 0;
  } catch (const lorikeet::Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
}
