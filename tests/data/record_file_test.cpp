#include "data/record_file.h"

#include "base/error.h"
#include "data/gzip.h"
#include "data/zstd.h"
#include "data_fixture.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;

namespace {

data::RecordFile open(const test::TemporaryFolder& folder, const std::string& bytes) {
  write_file_atomic(folder / "rows", bytes);
  return data::RecordFile(data::FileBytes(folder / "rows"));
}

}  // namespace

TEST_CASE("JSON lines, an array, and either packed give the same records with the file's lines") {
  const test::TemporaryFolder folder;
  const std::string lines = "{\"a\": 1}\r\n\n  {\"a\": \"]},{\\\"\"}\n{\"a\": 3}";
  const std::string array = "\n[ {\"a\": 1},\n\n{\"a\":\n \"]},{\\\"\"} , {\"a\": 3}\n]\n";
  for (const std::string& bytes :
       {lines, array, test::gzip(lines), test::gzip(array), test::zstd(lines), test::zstd(array)}) {
    const data::RecordFile file = open(folder, bytes);
    REQUIRE(file.size() == 3);
    CHECK(file.parse(0).dump() == R"({"a":1})");
    CHECK(file.parse(1).dump() == R"({"a":"]},{\""})");
    CHECK(file.parse(2).dump() == R"({"a":3})");
    const bool is_array = bytes == array || bytes == test::gzip(array) || bytes == test::zstd(array);
    CHECK(file.line(1) == (is_array ? 0 : 3));
    CHECK(file.where(1) == (is_array ? "[data] row 2 (line 4) of rows" : "[data] line 3 of rows"));
  }
}

TEST_CASE("errors in a one-line array name the row, not line 1") {
  const test::TemporaryFolder folder;
  const data::RecordFile file = open(folder, "[{\"a\": 1}, {\"a\": 2}, {\"a\" 3}]\n");
  CHECK(file.where(1) == "[data] row 2 of rows");
  CHECK_THROWS_WITH(file.parse(2),
                    Catch::StartsWith("[data] row 3 of rows: not valid JSON at column 6 of the row:"));
  CHECK_THROWS_WITH(open(folder, "[{\"a\": 1}, {\"a\": 2} {\"a\": 3}]"),
                    Catch::Contains("row 3 of rows") && !Catch::Contains("line"));
}

TEST_CASE("a value over several lines is an error that says how rows are written") {
  const test::TemporaryFolder folder;
  const auto error = [&](const std::string& bytes, std::size_t i) {
    return test::error_text([&] { open(folder, bytes).parse(i); });
  };
  const std::string pretty = "{\n  \"prompt\": \"{a\",\n  \"completion\": \"b\"\n}\n";
  CHECK(error(pretty + pretty, 0) ==
        "[data] line 1 of rows: expected a row a line, got a JSON value over several lines; write one row a "
        "line, as `jq -c .` does");
  CHECK_THAT(error("{\"a\": 1}\n" + pretty, 1), Catch::StartsWith("[data] line 2 of rows: expected a row a"));
  CHECK_THAT(error("{\"a\": 1}\n[1,\n2]\n", 1), Catch::Contains("several lines; write"));
  CHECK_THAT(error("{\"data\": [\n{\"prompt\": \"a\", \"completion\": \"b\"}\n]}", 0),
             Catch::Contains("over several lines. Its rows seem to lie in 'data'"));
  // Lines that lack something are none.
  CHECK_THAT(error("{\"a\": 1\n{\"a\": 2}\n", 0),
             Catch::Contains("line 1 of rows: not valid JSON at column"));
  CHECK_THAT(error("{\"a\": [1\n{\"a\": 2}]}\n", 0), Catch::Contains("not valid JSON"));
}

TEST_CASE("a NUL byte in a record is an error, never the end of it") {
  const test::TemporaryFolder folder;
  const data::RecordFile file = open(folder, std::string("{\"a\": 1}\n{\"a\": 2}\0{\"a\": 3}\n", 27));
  CHECK(file.parse(0).dump() == R"({"a":1})");
  CHECK_THROWS_WITH(file.parse(1), Catch::Contains("line 2 of rows") && Catch::Contains("a NUL byte"));
}

TEST_CASE("a byte order mark is skipped and joined gzip members are read on") {
  const test::TemporaryFolder folder;
  CHECK(open(folder, "\xEF\xBB\xBF{\"a\": 1}\n").size() == 1);
  CHECK(open(folder, test::gzip("{\"a\": 1}\n") + test::gzip("{\"a\": 2}\n")).parse(1).dump() ==
        R"({"a":2})");
}

TEST_CASE("an array that isn't well-formed is an error with its line") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_WITH(open(folder, "[{\"a\": 1},\n{\"a\": 2}"),
                    Catch::Contains("line 2") && Catch::Contains("cut"));
  CHECK_THROWS_WITH(open(folder, "[{\"a\": 1},\n{\"a\": "),
                    Catch::Contains("line 2") && Catch::Contains("cut"));
  CHECK_THROWS_WITH(open(folder, "[{\"a\": 1}\n{\"a\": 2}]"),
                    Catch::Contains("line 2") && Catch::Contains("','"));
  CHECK_THROWS_WITH(open(folder, "[{\"a\": 1}]\nx"),
                    Catch::Contains("line 2") && Catch::Contains("nothing after"));
  CHECK_THROWS_WITH(open(folder, "[{\"a\": 1},]"), Catch::Contains("expected a row"));
  CHECK_THROWS_WITH(open(folder, "[,{\"a\": 1}]"), Catch::Contains("expected a row"));
  CHECK_THROWS_WITH(open(folder, "[]"), Catch::Contains("empty array"));
  CHECK_THROWS_WITH(open(folder, "[\"a"), Catch::Contains("cut"));
  CHECK_THROWS_WITH(open(folder, "["), Catch::Contains("cut"));
}

TEST_CASE("gzip that expands beyond the limits is refused before it fills memory") {
  const std::string zeros = test::gzip(std::string(8 << 20, '0'));
  CHECK(data::gunzip(zeros, "f").size() == 8 << 20);
  CHECK_THROWS_WITH(data::gunzip(zeros, "f", {.ratio_free_bytes = 1 << 20}), Catch::Contains("200 times"));
  CHECK_THROWS_WITH(data::gunzip(zeros, "f", {.max_bytes = 1 << 20}), Catch::Contains("1.0 MiB"));
}

TEST_CASE("gzip that is cut at any byte, or damaged, is an error") {
  const std::string whole = test::gzip("{\"text\": \"some words that are packed\"}\n");
  for (std::size_t length = 2; length < whole.size(); ++length)
    CHECK_THROWS_WITH(data::gunzip(whole.substr(0, length), "f"), Catch::Contains("cut short"));
  std::string damaged = whole;
  damaged[damaged.size() / 2] ^= 0x55;
  CHECK_THROWS_AS(data::gunzip(damaged, "f"), Error);
  CHECK_THROWS_WITH(data::gunzip(whole + "trailing", "f"), Catch::Contains("corrupt"));
}

TEST_CASE("zstd frames with windows of 256 MB are read") {
  const std::string text = "{\"text\": \"a\"}\n";
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 28);
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
  ZSTD_inBuffer in{text.data(), text.size(), 0}, no_more{nullptr, 0, 0};
  ZSTD_compressStream2(context, &out, &in,
                       ZSTD_e_continue);  // before its size is known, so that the window stays
  REQUIRE(ZSTD_compressStream2(context, &out, &no_more, ZSTD_e_end) == 0);
  ZSTD_freeCCtx(context);
  bytes.resize(out.pos);
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> usual(ZSTD_createDStream(),
                                                                         ZSTD_freeDStream);
  std::string read(64, '\0');
  ZSTD_outBuffer to{read.data(), read.size(), 0};
  ZSTD_inBuffer from{bytes.data(), bytes.size(), 0};
  CHECK(ZSTD_isError(ZSTD_decompressStream(usual.get(), &to, &from)) != 0);  // with zstd's usual limit
  CHECK(data::unzstd(bytes, "f") == text);
}

TEST_CASE("zstd frames are read on, and expansion, damage and cuts are errors") {
  const std::string whole = test::zstd("{\"text\": \"some words that are packed\"}\n");
  const std::string skippable("\x50\x2A\x4D\x18\x03\0\0\0abc", 11);
  CHECK(data::is_zstd(skippable));
  CHECK(data::unzstd(skippable + whole + whole, "f").size() == 78);
  for (std::size_t length = 4; length < whole.size(); ++length)
    CHECK_THROWS_WITH(data::unzstd(whole.substr(0, length), "f"), Catch::Contains("cut short"));
  std::string damaged = whole;
  damaged[4] = '\x7f';
  CHECK_THROWS_AS(data::unzstd(damaged, "f"), Error);
  CHECK_THROWS_WITH(data::unzstd(whole + "trailing", "f"), Catch::Contains("corrupt"));
  CHECK_THROWS_WITH(data::unzstd(test::zstd(std::string(32 << 20, ' ')), "f"),
                    Catch::Contains("expands more than 200 times"));
}
