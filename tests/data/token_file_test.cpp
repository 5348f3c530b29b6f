#include "data/token_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "base/file.h"
#include "support/catch.h"
#include "support/largest_file.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::data;

namespace {

// Examples of many lengths, two in three with labels that are ids or none, the others with labels of their
// own.
TokenRows mixed_rows(std::size_t count, std::size_t first = 0) {
  TokenRows rows;
  for (std::size_t i = first; i < first + count; ++i) {
    std::vector<std::int32_t> ids, labels;
    for (std::size_t t = 0; t < 1 + i * 7 % 70; ++t) {
      ids.push_back(static_cast<std::int32_t>(i * 31 + t));
      labels.push_back(t % 3 == i % 3 ? kNoLabel : ids.back() + (i % 3 == 0 ? 1 : 0));
    }
    rows.add(ids, labels, static_cast<std::int64_t>(i / 2), static_cast<std::int64_t>(i + 1));
  }
  return rows;
}

void check_equal(const TokenDataset& got, const TokenDataset& expected) {
  CHECK(got.fingerprint() == expected.fingerprint());
  REQUIRE(got.size() == expected.size());
  bool equal = true;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto a = got.ids(i), b = expected.ids(i);
    equal = equal && std::equal(a.begin(), a.end(), b.begin(), b.end()) &&
            got.labels(i) == expected.labels(i) && got.label_count(i) == expected.label_count(i) &&
            got.source_row(i) == expected.source_row(i) && got.source_line(i) == expected.source_line(i);
  }
  CHECK(equal);
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TokenizedFile about() {
  return {.dataset = {},
          .counts = {.rows = 5,
                     .truncated = 6,
                     .dropped = 7,
                     .without_labels = 8,
                     .split = 9,
                     .unknown_ids = 10,
                     .empty_answers = 11,
                     .incomplete = 12},
          .format = "f",
          .template_description = "t"};
}

}  // namespace

TEST_CASE("packed rows give back ids and labels, whatever the labels are") {
  const TokenRows rows = mixed_rows(200);
  const TokenViews views(rows);
  std::vector<std::int32_t> labels;
  std::size_t bits = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    REQUIRE(views.length(i) == static_cast<std::int64_t>(1 + i * 7 % 70));
    views.labels(i, labels);
    REQUIRE(views.label_counts[i] == count_targets(labels));
    for (std::size_t t = 0; t < labels.size(); ++t) {
      const std::int32_t id = views.ids(i)[t];
      REQUIRE(id == static_cast<std::int32_t>(i * 31 + t));
      REQUIRE(labels[t] == (t % 3 == i % 3 ? kNoLabel : id + (i % 3 == 0 ? 1 : 0)));
    }
    bits += (views.lengths[i] & TokenViews::kFullLabels) == 0 ? 1 : 0;
  }
  CHECK(bits >= 133);
  CHECK(bits < 200);
  CHECK_NOTHROW(views.check());
}

TEST_CASE("a file written in pieces holds what the rows hold in memory, and has the same fingerprint") {
  const test::TemporaryFolder folder;
  const TokenDataset expected(mixed_rows(3000));
  for (const bool named : {true, false}) {
    const auto writer = named ? TokenFileWriter::make_named(folder / "tokens")
                              : TokenFileWriter::make_anonymous(folder.path());
    for (std::size_t i = 0; i < 3000; i += 50) writer->append(mixed_rows(50, i));
    const TokenizedFile file = writer->finish(about());
    check_equal(file.dataset, expected);
    CHECK(file.counts == about().counts);
    CHECK(file.format == "f");
    CHECK(file.template_description == "t");
    if (named) check_equal(read_token_file(folder / "tokens", true).dataset, expected);
  }
  CHECK(files_in(folder.path()) == 1);  // the named one
}

TEST_CASE("an index larger than its buffers goes through the disk") {
  const test::TemporaryFolder folder;
  TokenRows rows;
  for (std::int32_t i = 0; i < 150'000; ++i) rows.add(std::vector{i, i}, std::vector{kNoLabel, i}, i, i + 1);
  const auto writer = TokenFileWriter::make_named(folder / "tokens");
  for (int i = 0; i < 3; ++i) writer->append(rows);
  const TokenDataset dataset = writer->finish(about()).dataset;
  REQUIRE(dataset.size() == 450'000);
  CHECK(dataset.total_labels() == 450'000);
  CHECK(dataset.source_row(449'999) == 149'999);
  CHECK(dataset.ids(300'000 + 7)[1] == 7);
}

TEST_CASE("a token file that was cut or changed anywhere is refused") {
  const test::TemporaryFolder folder;
  const auto path = folder / "tokens";
  const auto writer = TokenFileWriter::make_named(path);
  writer->append(mixed_rows(40));
  writer->finish(about());
  const std::string whole = read_file(path);
  for (std::size_t length = 0; length < whole.size(); length += 97) {
    write_file_atomic(path, whole.substr(0, length));
    CHECK_THROWS_AS(read_token_file(path, false), Error);
  }
  int refused_by_index = 0, damages = 0;
  for (std::size_t i = 0; i < whole.size(); i += 5) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    write_file_atomic(path, damaged);
    CHECK_THROWS_AS(read_token_file(path, true), Error);
    ++damages;
    try {
      read_token_file(path, false);
    } catch (const Error&) {
      ++refused_by_index;
    }
  }
  CHECK(refused_by_index > 0);
  CHECK(refused_by_index < damages);  // the words themselves are only held to their hash when asked
}

TEST_CASE("a full disk is an error of the writer and leaves no file") {
  const test::TemporaryFolder folder;
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{1000}, rlim_t{1} << 20, (rlim_t{1} << 20) + 4000}) {
    for (const bool named : {true, false}) {
      INFO(bytes);
      const auto write = [&] {
        const test::LargestFile limit(bytes);
        const auto writer = named ? TokenFileWriter::make_named(folder / "tokens")
                                  : TokenFileWriter::make_anonymous(folder.path());
        for (std::size_t i = 0; i < 20'000; i += 500) writer->append(mixed_rows(500, i));
        writer->finish(about());
      };
      CHECK_THROWS_AS(write(), Error);
      CHECK(files_in(folder.path()) == 0);
    }
  }
}

TEST_CASE("a killed writer leaves nothing under the file's name") {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto named = TokenFileWriter::make_named(folder / "tokens");
    const auto anonymous = TokenFileWriter::make_anonymous(folder.path());
    for (std::size_t i = 0; i < 20'000; i += 500) {
      named->append(mixed_rows(500, i));
      anonymous->append(mixed_rows(500, i));
    }
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  REQUIRE(files_in(folder.path()) == 1);
  const auto left = std::filesystem::directory_iterator(folder.path())->path().filename().string();
  CHECK_THAT(left, Catch::StartsWith("tokens.tmp-"));
  CHECK_THROWS_AS(read_token_file(folder / left, true), Error);
}
