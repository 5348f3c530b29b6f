#include "data/token_cache.h"

#include <sys/stat.h>

#include <cstdlib>

#include "data_fixture.h"
#include "support/captured_stderr.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

const std::string kRows = R"({"prompt": "a", "completion": "b"})"
                          "\n"
                          R"({"prompt": "c", "completion": "d"})"
                          "\n";

struct CacheFixture : test::DataFixture {
  CacheFixture() {
    options.use_cache = true;
    options.cache_dir = folder / "cache";
  }
  std::filesystem::path only_file() const {
    const std::filesystem::directory_iterator files(*options.cache_dir);
    REQUIRE(std::distance(begin(files), end(files)) == 1);
    return std::filesystem::directory_iterator(*options.cache_dir)->path();
  }
  unsigned mode_of(const std::filesystem::path& path) const {
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    return info.st_mode & 07777;
  }
};

}  // namespace

TEST_CASE("a second start takes the same data and the same report from the cache") {
  CacheFixture data;
  const data::LoadedFile first = data.load(kRows);
  const data::LoadedFile second = data.load(kRows);
  CHECK_FALSE(first.report.cache_hit);
  CHECK(second.report.cache_hit);
  CHECK(second.dataset.fingerprint() == first.dataset.fingerprint());
  REQUIRE(second.dataset.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(test::spell(second.dataset.ids(i)) == test::spell(first.dataset.ids(i)));
    CHECK(test::spell_labels(second.dataset, i) == test::spell_labels(first.dataset, i));
    CHECK(second.dataset.source_line(i) == first.dataset.source_line(i));
    CHECK(second.dataset.label_count(i) == first.dataset.label_count(i));
  }
  CHECK(second.report.format == first.report.format);
  CHECK(second.report.template_description == first.report.template_description);
  CHECK(second.report.counts.rows == 2);
  data.options.use_cache = false;
  CHECK(data.load(kRows).dataset.fingerprint() == first.dataset.fingerprint());
}

TEST_CASE("the cache is for its owner's eyes only") {
  CacheFixture data;
  data.load(kRows);
  CHECK(data.mode_of(*data.options.cache_dir) == 0700);
  CHECK(data.mode_of(data.only_file()) == 0600);
}

TEST_CASE("a folder that was there is used as it is, also through a link, and its mode stays") {
  CacheFixture data;
  for (const unsigned mode : {0755U, 01777U}) {
    const auto shared = data.folder / std::to_string(mode);
    std::filesystem::create_directory(shared);
    std::filesystem::permissions(shared, std::filesystem::perms{mode});
    std::filesystem::create_directory_symlink(shared, data.folder / "link");
    data.options.cache_dir = data.folder / "link";
    CHECK_FALSE(data.load(kRows).report.cache_hit);
    CHECK(data.load(kRows).report.cache_hit);
    CHECK(data.mode_of(shared) == mode);
    CHECK(data.mode_of(data.only_file()) == 0600);
    std::filesystem::remove(data.folder / "link");
  }
}

TEST_CASE("a folder in which others may replace files is left alone, and costs time, not the run") {
  CacheFixture data;
  std::filesystem::create_directory(*data.options.cache_dir);
  std::filesystem::permissions(*data.options.cache_dir, std::filesystem::perms{0777});
  CHECK(data.load(kRows).dataset.size() == 2);
  CHECK_FALSE(data.load(kRows).report.cache_hit);
  CHECK(std::filesystem::is_empty(*data.options.cache_dir));
  CHECK(data.mode_of(*data.options.cache_dir) == 0777);
}

TEST_CASE("a cache file that somebody else could have written is not read") {
  CacheFixture data;
  data.load(kRows);
  const auto file = data.only_file();
  std::filesystem::permissions(file, std::filesystem::perms{0666});
  CHECK_FALSE(data.load(kRows).report.cache_hit);
  CHECK(data.mode_of(file) == 0600);  // made anew
  std::filesystem::rename(file, data.folder / "elsewhere");
  std::filesystem::create_symlink(data.folder / "elsewhere", file);
  CHECK_FALSE(data.load(kRows).report.cache_hit);
  CHECK_FALSE(std::filesystem::is_symlink(file));
  CHECK(data.load(kRows).report.cache_hit);
}

TEST_CASE("whatever decides the tokens decides the key") {
  CacheFixture data;
  data.load(kRows);
  const auto misses = [&](auto change) {
    CacheFixture other;
    other.options.cache_dir = data.options.cache_dir;
    std::string rows = kRows;
    change(other, rows);
    const bool missed = !other.load(rows).report.cache_hit;
    CHECK(other.load(rows).report.cache_hit);
    return missed;
  };
  CHECK_FALSE(misses([](auto&, auto&) {}));
  CHECK_FALSE(misses([](auto& fixture, auto&) { fixture.options.threads = 3; }));
  CHECK(misses([](auto&, auto& rows) { rows += "\n"; }));
  CHECK(misses([](auto& fixture, auto&) { fixture.options.max_seq_len = 1000; }));
  CHECK(misses([](auto& fixture, auto&) { fixture.options.overlong = data::Overlong::kDrop; }));
  CHECK(misses([](auto& fixture, auto&) { fixture.options.train_on = text::TrainOn::kLast; }));
  CHECK(misses([](auto& fixture, auto&) { fixture.options.format = "instruct"; }));
  CHECK(misses([](auto& fixture, auto&) { fixture.options.columns = {{"prompt", "prompt"}}; }));
  CHECK(misses([](auto& fixture, auto&) { fixture.options.chat_template = "plain"; }));
  CHECK(misses([](auto& fixture, auto&) { fixture.options.template_date = "2024-07-27"; }));
  CHECK(misses([](auto& fixture, auto&) { fixture.options.embedding_rows = 100000; }));
  CHECK(misses([](auto& fixture, auto&) { fixture.tokenizer_options.dummy_prefix = true; }));
  CHECK(misses([](auto& fixture, auto&) { fixture.tokenizer_options.bos = false; }));
  CHECK(misses([](auto& fixture, auto&) {
    fixture.options.chat_template = "llama3";
    fixture.tokenizer_options.chat_template = "unknown";
  }));
  CHECK(misses([](auto& fixture, auto&) {
    fixture.options.chat_template = "llama3";
    fixture.tokenizer_options.tool_template = "for tools";
  }));
}

TEST_CASE("a damaged cache file is found out and made again") {
  CacheFixture data;
  const std::string fingerprint = data.load(kRows).dataset.fingerprint();
  const std::string whole = read_file(data.only_file());
  std::vector<std::string> damages{"", whole.substr(0, 40), whole.substr(0, whole.size() - 1), whole + "x"};
  for (std::size_t i = 0; i < whole.size(); i += 7) {
    damages.push_back(whole);
    damages.back()[i] = static_cast<char>(damages.back()[i] ^ 1);
  }
  for (const std::string& damage : damages) {
    write_file_atomic(data.only_file(), damage);
    const test::CapturedStderr warnings;  // hundreds of them would hide a failure
    const data::LoadedFile again = data.load(kRows);
    CHECK_THAT(warnings.text(), Catch::Contains("is damaged") && Catch::Contains("tokenising again"));
    CHECK_FALSE(again.report.cache_hit);
    CHECK(again.dataset.fingerprint() == fingerprint);
    CHECK(read_file(data.only_file()) == whole);
  }
}

TEST_CASE("a cache folder that can't be used costs time, not the run") {
  CacheFixture data;
  write_file_atomic(data.folder / "file", "");
  data.options.cache_dir = data.folder / "file" / "cache";
  CHECK(data.load(kRows).dataset.size() == 2);
  data.options.cache_dir = data.folder / "file";
  CHECK(data.load(kRows).dataset.size() == 2);
}

TEST_CASE("a failing file leaves nothing in the cache") {
  CacheFixture data;
  CHECK_THROWS(data.load(kRows + "{\n"));
  CHECK_FALSE(std::filesystem::exists(*data.options.cache_dir));
}

TEST_CASE("the default cache folder follows XDG_CACHE_HOME, then HOME") {
  const auto restore = [](const char* name, const char* value) {
    return value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  };
  const char* old_xdg = std::getenv("XDG_CACHE_HOME");
  const char* old_home = std::getenv("HOME");
  const std::string xdg = old_xdg != nullptr ? old_xdg : "";
  const std::string home = old_home != nullptr ? old_home : "";
  setenv("XDG_CACHE_HOME", "/x/cache", 1);
  CHECK(*data::default_cache_dir() == "/x/cache/lorikeet/tokens");
  setenv("XDG_CACHE_HOME", "relative", 1);
  setenv("HOME", "/h", 1);
  CHECK(*data::default_cache_dir() == "/h/.cache/lorikeet/tokens");
  unsetenv("HOME");
  CHECK_FALSE(data::default_cache_dir().has_value());
  restore("XDG_CACHE_HOME", old_xdg != nullptr ? xdg.c_str() : nullptr);
  restore("HOME", old_home != nullptr ? home.c_str() : nullptr);
}
