#include "io/safetensors.h"

#include "io/safetensors_writer.h"
#include "support.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::io;
using Catch::Contains;
using test::error_text;
using test::member;
using test::safetensors_bytes;

namespace {

SafetensorsHeader parse(const std::string& bytes) { return parse_safetensors_header(bytes, "x.safetensors"); }

std::string error_of(const std::string& bytes) {
  return error_text([&] { parse(bytes); });
}

std::string error_of_header(const std::string& json, std::size_t data_bytes) {
  return error_of(safetensors_bytes(json, data_bytes));
}

}  // namespace

TEST_CASE("a header is read with names, dtypes, shapes, ranges and metadata") {
  const SafetensorsHeader header = parse(safetensors_bytes(
      "{\"__metadata__\":{\"format\":\"pt\"}," + member("b", "BF16", "[2,3]", 4, 16) + "," +
          member("a", "F32", "[]", 0, 4) + "," + member("none", "F32", "[0,7]", 4, 4) + "}   ",
      16));
  REQUIRE(header.entries.size() == 3);
  CHECK(header.entries[0].tensor.name == "a");
  CHECK(header.entries[0].tensor.shape.empty());
  CHECK(header.entries[1].tensor.name == "none");
  CHECK(header.entries[2].tensor.dtype == DType::kBF16);
  CHECK(header.entries[2].bytes == 12);
  CHECK(header.entries[2].offset == header.data_offset + 4);
  CHECK(header.metadata.at("format") == "pt");
}

TEST_CASE("a file that is cut at any byte is refused") {
  const std::string whole = safetensors_bytes("{" + member("a", "F32", "[2]", 0, 8) + "}", 8);
  CHECK_NOTHROW(parse(whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    INFO(length);
    CHECK_THAT(error_of(whole.substr(0, length)), Contains("x.safetensors"));
  }
}

TEST_CASE("overlapping, gapped, short and long data are refused by the tensor's name") {
  const std::string a = member("a", "U8", "[4]", 0, 4);
  CHECK_THAT(error_of_header("{" + a + "," + member("b", "U8", "[4]", 3, 7) + "}", 7),
             Contains("'b'") && Contains("overlaps"));
  CHECK_THAT(error_of_header("{" + a + "," + member("b", "U8", "[4]", 0, 4) + "}", 4), Contains("overlaps"));
  CHECK_THAT(error_of_header("{" + a + "," + member("b", "U8", "[4]", 5, 9) + "}", 9),
             Contains("'b'") && Contains("gap"));
  CHECK_THAT(error_of_header("{" + member("b", "U8", "[4]", 1, 5) + "}", 5), Contains("gap"));
  CHECK_THAT(error_of_header("{" + a + "}", 5), Contains("expected a file of"));
  CHECK_THAT(error_of_header("{" + a + "}", 3), Contains("within the file's 3 bytes"));
  CHECK_THAT(error_of_header("{}", 1), Contains("expected a file of"));
}

TEST_CASE("sizes that don't fit dtype and shape, or don't fit at all, are refused") {
  const auto [shape, message] = GENERATE(table<std::string, std::string>({
      {"[3]", "expected 12 bytes by dtype and shape, got 8"},
      {"[-2]", "extents of at least 0"},
      {"[-1,-2]", "extents of at least 0"},
      {"[4294967296,4294967296]", "over 2^58"},
      {"[4611686018427387906,4]", "over 2^58"},  // times 4 bytes wraps round to 32
      {"[9223372036854775807,2,0]", "over 2^58"},
      {"[18446744073709551616]", "integer"},
      {"[2.5]", "integer"},
      {"[\"2\"]", "integer"},
      {"[[2]]", "integer"},
      {"2", "array"},
      {"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "32 dimensions"},
  }));
  INFO(shape);
  CHECK_THAT(error_of_header("{" + member("w", "F32", shape, 0, 8) + "}", 8),
             Contains(message) && Contains("w"));
}

TEST_CASE("headers that are no tensor table are refused") {
  const auto [json, message] = GENERATE(table<std::string, std::string>({
      {"", "not valid JSON"},
      {"[]", "object"},
      {"{", "not valid JSON"},
      {"{}x", "not valid JSON"},
      {"{\"w\":{}}", "dtype"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2]}}", "data_offsets"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", "two offsets"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "within the file's"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", "within the file's"},
      {"{\"w\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", "known dtype"},
      {"{\"w\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]}}", "string"},
      {"{\"__metadata__\":{\"a\":1}}", "string"},
      {"{\"__metadata__\":3}", "object"},
      {"{\"w\":1,\"w\":1}", "duplicate key 'w'"},
      {"{\"w\":[[[[[[1]]]]]]}", "nested deeper"},
      {std::string("{}\0\0", 4), "a NUL byte"},  // the format pads with blanks
  }));
  INFO(json);
  CHECK_THAT(error_of_header(json, 8), Contains(message));
}

TEST_CASE("a length that is absurd is refused before anything is read, with a guess at what the file is") {
  CHECK_THAT(error_of(std::string(8, '\xff')), Contains("at most 100000000"));
  CHECK_THAT(error_of(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8)),
             Contains("at most 100000000"));  // 100 MB + 1
  CHECK_THAT(error_of(std::string("\x09\0\0\0\0\0\0\0{}", 10)), Contains("expected a header of 9 bytes"));
  CHECK_THAT(error_of("version https://git-lfs.github.com/spec/v1"), Contains("git lfs pull"));
  CHECK_THAT(error_of(std::string("PK\x03\x04") + std::string(30, 'x')), Contains("PyTorch pickle"));
  CHECK_THAT(error_of("GGUF" + std::string(30, 'x')), Contains("GGUF"));
  CHECK_THAT(error_of("<!DOCTYPE html><html>"), Contains("web page"));
}

TEST_CASE("tensors written read back, with metadata and bytes") {
  const test::TemporaryFolder folder;
  const std::string floats = std::string("\0\0\x80\x3f\0\0\0\x40", 8);
  write_safetensors(folder / "t.safetensors",
                    {{{"small", DType::kU8, {3}}, "abc"},
                     {{"x\"y", DType::kF32, {2, 1}}, floats},
                     {{"empty", DType::kBF16, {0, 5}}, ""}},
                    {{"format", "pt"}});
  const SafetensorsFile file = SafetensorsFile::open(folder / "t.safetensors");
  CHECK(file.tensors().size() == 3);
  CHECK(file.metadata().at("format") == "pt");
  REQUIRE(file.find("x\"y") != nullptr);
  CHECK(file.find("x\"y")->bytes == floats);
  CHECK(file.find("x\"y")->shape == std::vector<std::int64_t>{2, 1});
  CHECK(file.find("small")->bytes == "abc");
  CHECK(file.find("empty")->bytes.empty());
  CHECK(file.find("absent") == nullptr);
  for (const TensorView& tensor : file.tensors()) file.drop_pages(tensor);
  CHECK(file.find("small")->bytes == "abc");
}

TEST_CASE("the same tensors give the same bytes in any order, and large elements come first") {
  const test::TemporaryFolder folder;
  const TensorEntry a{{"a", DType::kU8, {3}}, "abc"};
  const TensorEntry b{{"b", DType::kF32, {1}}, "1234"};
  write_safetensors(folder / "1", {a, b});
  write_safetensors(folder / "2", {b, a});
  CHECK(read_file(folder / "1") == read_file(folder / "2"));
  const SafetensorsFile file = SafetensorsFile::open(folder / "1");
  CHECK(file.tensors()[0].name == "b");
  CHECK(reinterpret_cast<std::uintptr_t>(file.tensors()[0].bytes.data()) % 8 == 0);
}

TEST_CASE("a writer that is misused or given up leaves the old file as it was") {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / "t", "old");
  const std::vector<TensorSpec> two{{"a", DType::kU8, {1}}, {"b", DType::kU8, {1}}};
  const auto run_error = [](auto action) { return error_text(action, ErrorKind::kRunFailed); };
  CHECK_THAT(run_error([&] { SafetensorsWriter(folder / "t", two).write("xy"); }),
             Contains("expected 1 bytes, got 2"));
  CHECK_THAT(run_error([&] {
               SafetensorsWriter writer(folder / "t", two);
               writer.write("x");
               writer.finish();
             }),
             Contains("expected 2 tensors, got 1"));
  CHECK_THAT(error_text([&] { write_safetensors(folder / "t", {{two[0], "x"}, {two[0], "y"}}); }),
             Contains("'a' is taken"));
  CHECK_THAT(error_text([&] { write_safetensors(folder / "t", {{{"__metadata__", DType::kU8, {1}}, "x"}}); }),
             Contains("is taken"));
  CHECK(read_file(folder / "t") == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("dtypes are written in the order of the format's reference") {
  // As safetensors 0.8 for Python wrote one tensor of each.
  const std::string expected = "I64 F64 F32 I32 BF16 F16 I16 F8_E4M3 F8_E5M2 I8 U8 BOOL ";
  std::vector<TensorSpec> tensors;
  for (int i = 0; i <= static_cast<int>(DType::kF8E5M2); ++i)
    tensors.push_back({std::string(1, static_cast<char>('a' + i)), static_cast<DType>(i), {1}});
  sort_for_safetensors(tensors);
  std::string order;
  for (const TensorSpec& tensor : tensors) order += std::string(dtype_safetensors_name(tensor.dtype)) + " ";
  CHECK(order == expected);
}
