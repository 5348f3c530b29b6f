// Data sets that don't fit the memory they may take: the same data in other places.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/strings.h"
#include "data/micro_batch.h"
#include "data_fixture.h"
#include "support/catch.h"
#include "support/largest_file.h"

using namespace lorikeet;
namespace fs = std::filesystem;

namespace {

// A sanitizer keeps freed memory for a while. GCC and clang say in different words that there is one.
#if defined(__has_feature)
#define LORIKEET_HAS(feature) __has_feature(feature)
#else
#define LORIKEET_HAS(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || LORIKEET_HAS(address_sanitizer) || \
    LORIKEET_HAS(thread_sanitizer)
constexpr std::size_t kMostMemory = std::size_t{4} << 30;
#else
constexpr std::size_t kMostMemory = std::size_t{240} << 20;
#endif

std::string answers(int count, std::size_t length = 40) {
  std::string rows;
  for (int i = 0; i < count; ++i) {
    const std::string answer(1 + static_cast<std::size_t>(i * 7) % length, static_cast<char>('a' + i % 26));
    rows += "{\"prompt\": \"row " + std::to_string(i) + "\", \"completion\": \"" + answer + "\"}\n";
  }
  return rows;
}

struct LargeData : test::DataFixture {
  LargeData() {
    options.most_memory_bytes = 4096;
    options.noted_from_bytes = 1;
    options.cache_dir = folder / "cache";
    options.use_cache = true;
  }
  std::vector<fs::path> cached(const std::string& ending) const {
    std::vector<fs::path> found;
    if (fs::exists(*options.cache_dir)) {
      for (const auto& entry : fs::directory_iterator(*options.cache_dir))
        if (entry.path().string().ends_with(ending)) found.push_back(entry.path());
    }
    return found;
  }
};

void check_equal_steps(const data::TokenDataset& got, const data::TokenDataset& expected) {
  data::SamplerOptions how;
  how.examples_per_step = 7;
  how.epochs = 2;
  const data::Sampler a(got, how), b(expected, how);
  REQUIRE(a.total_steps() == b.total_steps());
  // From the middle too: where a resumed run begins.
  for (const std::int64_t first : {a.total_steps() / 2 + 3, std::int64_t{0}}) {
    for (std::int64_t s = first; s < a.total_steps(); ++s) {
      const auto mine = data::make_micro_batches(got, a.step(s).examples, {.micro_tokens = 200});
      const auto theirs = data::make_micro_batches(expected, b.step(s).examples, {.micro_tokens = 200});
      REQUIRE(mine.size() == theirs.size());
      for (std::size_t m = 0; m < mine.size(); ++m) {
        REQUIRE(mine[m].tokens == theirs[m].tokens);
        REQUIRE(mine[m].labels == theirs[m].labels);
        REQUIRE(mine[m].cu_seqlens == theirs[m].cu_seqlens);
        REQUIRE(mine[m].sample_ids == theirs[m].sample_ids);
      }
    }
  }
}

std::size_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6)) * 1024;
  return 0;
}

}  // namespace

TEST_CASE("steps from disk are those from memory, bit for bit, with a cache, without, and from the cache") {
  LargeData data;
  const std::string rows = answers(1000);
  data.options.most_memory_bytes = SIZE_MAX;
  data.options.use_cache = false;
  const data::LoadedFile memory = data.load(rows);
  data.options.most_memory_bytes = 4096;
  const data::LoadedFile spilled = data.load(rows);
  data.options.use_cache = true;
  const data::LoadedFile first = data.load(rows);
  const data::LoadedFile second = data.load(rows);
  CHECK_FALSE(first.report.cache_hit);
  CHECK(second.report.cache_hit);
  for (const data::LoadedFile* loaded : {&spilled, &first, &second}) {
    CHECK(loaded->dataset.fingerprint() == memory.dataset.fingerprint());
    CHECK(loaded->report.counts.rows == 1000);
    CHECK(loaded->report.tokens == memory.report.tokens);
    CHECK(loaded->report.label_tokens == memory.report.label_tokens);
    check_equal_steps(loaded->dataset, memory.dataset);
  }
}

TEST_CASE("a validation fraction of data on disk is that of data in memory") {
  LargeData data;
  data.write(answers(300));
  data.options.validation_fraction = 0.1;
  const auto tokenizer = test::fake_tokenizer();
  const data::LoadedData disk = data::load_data(data.options, *tokenizer);
  data.options.most_memory_bytes = SIZE_MAX;
  data.options.use_cache = false;
  const data::LoadedData memory = data::load_data(data.options, *tokenizer);
  CHECK(disk.train.fingerprint() == memory.train.fingerprint());
  CHECK(disk.validation->fingerprint() == memory.validation->fingerprint());
}

TEST_CASE("rows in any number of threads have the file's order on disk") {
  LargeData data;
  data.options.use_cache = false;
  const std::string rows = answers(2000);
  data.options.threads = 1;
  const std::string fingerprint = data.load(rows).dataset.fingerprint();
  for (const unsigned threads : {2U, 7U}) {
    data.options.threads = threads;
    CHECK(data.load(rows).dataset.fingerprint() == fingerprint);
  }
}

TEST_CASE("a source changed between starts is tokenised again, also with its old size and time") {
  LargeData data;
  const std::string rows = answers(500);
  const auto before = data.load(rows);
  REQUIRE(data.load(rows).report.cache_hit);
  const auto time = fs::last_write_time(data.options.train_path);
  std::string changed = rows;
  changed[changed.find("row 7")] = 'R';
  std::ofstream(data.options.train_path, std::ios::in | std::ios::out) << changed;
  fs::last_write_time(data.options.train_path, time);
  const auto again = data::load_file(data.options.train_path, data.options, *test::fake_tokenizer());
  CHECK_FALSE(again.report.cache_hit);
  CHECK(again.dataset.fingerprint() != before.dataset.fingerprint());
  fs::resize_file(data.options.train_path, changed.find("row 100") - 12);
  const auto cut = data::load_file(data.options.train_path, data.options, *test::fake_tokenizer());
  CHECK(cut.report.counts.rows == 100);
}

TEST_CASE("an unchanged large source isn't read again, and a touched one is, to no effect") {
  LargeData data;
  data.write(answers(500));
  const auto load = [&] {
    return data::load_file(data.options.train_path, data.options, *test::fake_tokenizer());
  };
  const std::string fingerprint = load().dataset.fingerprint();
  CHECK(data.cached(".note").size() == 2);  // of the source and of the tokens
  CHECK(load().report.cache_hit);
  fs::last_write_time(data.options.train_path, fs::file_time_type::clock::now());
  CHECK(load().report.cache_hit);
  CHECK(load().dataset.fingerprint() == fingerprint);
}

TEST_CASE("tokens damaged between starts are made again") {
  LargeData data;
  const std::string rows = answers(500);
  const std::string fingerprint = data.load(rows).dataset.fingerprint();
  REQUIRE(data.cached(".tokens").size() == 1);
  const fs::path file = data.cached(".tokens")[0];
  const std::string whole = read_file(file);
  const auto made_again = [&](auto damage) {
    damage();
    const auto loaded = data.load(rows);
    CHECK(loaded.dataset.fingerprint() == fingerprint);
    CHECK(read_file(file) == whole);
    return !loaded.report.cache_hit;
  };
  CHECK(made_again([&] { fs::resize_file(file, whole.size() - 8); }));
  CHECK(made_again([&] { fs::resize_file(file, 0); }));
  CHECK(made_again([&] {
    const auto time = fs::last_write_time(file);
    std::fstream out(file, std::ios::in | std::ios::out);
    out.seekp(400);  // inside the words
    out << 'x';
    out.close();
    fs::last_write_time(file, time);
  }));
  CHECK(made_again([&] { fs::remove(file); }));
}

TEST_CASE("a cache that fills up is an error that names the folder where memory doesn't hold the tokens") {
  LargeData data;
  data.write(answers(5000));
  const auto load = [&] {
    const test::LargestFile limit(rlim_t{1} << 20);
    return data::load_file(data.options.train_path, data.options, *test::fake_tokenizer());
  };
  CHECK_THROWS_WITH(load(), Catch::Contains(data.options.cache_dir->string()) &&
                                Catch::Contains("File too large") && Catch::Contains("set data.cache_dir"));
  CHECK(data.cached(".tokens").empty());
  CHECK(data.cached(".tokens").size() + data.cached(".note").size() == data.cached("").size());
  data.options.most_memory_bytes = SIZE_MAX;
  CHECK(load().dataset.size() == 5000);  // costs the next start time, not the run
  data.options.most_memory_bytes = 4096;
  CHECK(data::load_file(data.options.train_path, data.options, *test::fake_tokenizer()).dataset.size() ==
        5000);
}

TEST_CASE("without a cache that can be used, tokens go to a file without a name") {
  LargeData data;
  write_file_atomic(data.folder / "file", "");
  data.options.cache_dir = data.folder / "file" / "cache";
  CHECK(data.load(answers(500)).dataset.size() == 500);
  fs::create_directory(data.folder / "spill");
  const char* old = std::getenv("TMPDIR");
  const std::string before = old != nullptr ? old : "";
  setenv("TMPDIR", (data.folder / "spill").c_str(), 1);
  const data::LoadedFile loaded = data.load(answers(500));
  CHECK(fs::is_empty(data.folder / "spill"));
  CHECK(loaded.dataset.length(499) > 0);
  setenv("TMPDIR", (data.folder / "absent").c_str(), 1);
  CHECK_THROWS_WITH(data.load(answers(500)), Catch::Contains("TMPDIR"));
  old != nullptr ? setenv("TMPDIR", before.c_str(), 1) : unsetenv("TMPDIR");
}

TEST_CASE("a bad row behind many good ones is the error, and nothing is kept") {
  LargeData data;
  CHECK_THROWS_WITH(data.load(answers(3000) + "{\"prompt\": 1, \"completion\": \"x\"}\n{\n"),
                    Catch::Contains("line 3001") && Catch::Contains("prompt"));
  CHECK(data.cached(".tokens").empty());
  CHECK(data.cached(".tokens").size() + data.cached(".note").size() == data.cached("").size());
}

TEST_CASE("memory doesn't grow with the data") {
  LargeData data;
  data.options.most_memory_bytes = std::size_t{1} << 20;
  data.options.max_seq_len = 4096;
  data.options.threads = 2;
  const std::size_t rows = 80'000, length = 1000;
  const fs::path path = data.write("");
  {
    std::ofstream out(path);
    const std::string text(length, 'x');
    for (std::size_t i = 0; i < rows; ++i) out << "{\"text\": \"" << i << text << "\"}\n";
  }
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const std::size_t before = peak_memory();
  REQUIRE(before > 0);
  const auto loaded = data::load_file(path, data.options, *test::fake_tokenizer());
  CHECK(loaded.dataset.total_tokens() > static_cast<std::int64_t>(rows * length));
  for (std::size_t i = 0; i < rows; ++i) CHECK(loaded.dataset.ids(i).size() > length);
  // The file has 81 MB, its tokens take 330 MB. What may stay: pieces of 16 and 64 MB of the two files, 128
  // MB of examples that were read at random, and 32 MB of buffers.
  CHECK(peak_memory() - before < kMostMemory);
}

TEST_CASE("a mixture on disk is that in memory") {
  LargeData data;
  const fs::path first = data.write(answers(400), "a.jsonl"),
                 second = data.write(answers(300, 90), "b.jsonl");
  data.options.sources = {{first, {}, 3.0}, {second, {}, 1.0}};
  const auto tokenizer = test::fake_tokenizer();
  for (const bool weighted : {false, true}) {
    data.options.weighted = weighted;
    data.options.most_memory_bytes = 4096;
    data.options.use_cache = true;
    const data::LoadedData disk = data::load_data(data.options, *tokenizer);
    data.options.most_memory_bytes = SIZE_MAX;
    data.options.use_cache = false;
    const data::LoadedData memory = data::load_data(data.options, *tokenizer);
    CHECK(disk.train.size() == (weighted ? 533 : 700));
    CHECK(disk.train.fingerprint() == memory.train.fingerprint());
    check_equal_steps(disk.train, memory.train);
  }
}
