#include "io/torch_archive.h"

#include <cstring>

#include "base/error.h"
#include "io/pickle.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

std::filesystem::path stored(const std::string& name) {
  return std::filesystem::path(LORIKEET_TORCH_FILES) / name;
}

std::string names_of(const io::TorchArchive& archive) {
  std::string names;
  for (const io::TensorView& tensor : archive.tensors()) names += tensor.name + " ";
  return names;
}

float float_at(const io::TensorView& tensor, std::size_t i) {
  float value = 0;
  std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
  return value;
}

// The archive with all places that hold `old` holding `now`, of the same length.
std::string changed(std::string bytes, const std::string& old, const std::string& now) {
  REQUIRE(old.size() == now.size());
  REQUIRE(bytes.find(old) != std::string::npos);
  for (std::size_t at = bytes.find(old); at != std::string::npos; at = bytes.find(old, at + 1))
    bytes.replace(at, old.size(), now);
  return bytes;
}

void read(const std::string& bytes) { io::TorchArchive::from_bytes(bytes, "a.pt"); }

}  // namespace

TEST_CASE("tensors of torch.save's dictionaries have joined keys, dtypes and shapes") {
  const auto archive = io::TorchArchive::open(stored("nested"));
  CHECK(names_of(archive) == "model.a model.b ");
  CHECK(archive.tensors()[0].dtype == DType::kF32);
  CHECK(archive.tensors()[0].shape == std::vector<std::int64_t>{2, 3});
  CHECK(float_at(archive.tensors()[0], 4) == 4.0F);
  CHECK(archive.tensors()[1].dtype == DType::kBF16);
  CHECK(archive.tensors()[1].bytes.size() == 12);
  CHECK(io::TorchArchive::open(stored("protocol4")).tensors()[0].dtype == DType::kI64);
}

TEST_CASE("tensors that share a storage are parts of it, and parameters are tensors") {
  const auto archive = io::TorchArchive::open(stored("shared"));
  CHECK(names_of(archive) == "all row parameter ");
  CHECK(archive.tensors()[1].shape == std::vector<std::int64_t>{3});
  CHECK(float_at(archive.tensors()[1], 0) == 3.0F);
  CHECK(archive.tensors()[2].dtype == DType::kF64);
}

TEST_CASE("a file that is cut anywhere is an error that names it") {
  const std::string whole = read_file(stored("nested"));
  for (std::size_t length = 0; length < whole.size(); length += 7)
    CHECK_THROWS_WITH(read(whole.substr(0, length)), Contains("'a.pt'"));
}

TEST_CASE("tensors that don't fit their values, and kinds that aren't known, are errors") {
  const std::string whole = read_file(stored("nested"));
  CHECK_THROWS_WITH(read(changed(whole, "K\x02K\x03", "K\x7FK\x03")), Contains("is larger than its values"));
  CHECK_THROWS_WITH(read(changed(whole, "FloatStorage", "FlootStorage")), Contains("FlootStorage"));
  CHECK_THROWS_WITH(read(changed(whole, "_rebuild_tensor_v2", "_rebuild_sparse_tn")),
                    Contains("_rebuild_sparse_tn"));
}

TEST_CASE("instructions of a pickle that tensors don't need are refused, and nothing is called") {
  using namespace std::string_literals;
  const io::Pickle call = io::read_pickle(
      "\x80\x02"
      "cposix\nsystem\nX\x04\0\0\0true\x85R."s,
      "a.pt");
  CHECK(call.root.is_call("posix system"));
  CHECK_THROWS_WITH(io::read_pickle("I1\n.", "a.pt"), Contains("instruction 73"));
  CHECK_THROWS_WITH(io::read_pickle("t.", "a.pt"), Contains("mark"));
  CHECK_THROWS_WITH(io::read_pickle("}K\x01s.", "a.pt"), Contains("items for what takes none"));
  CHECK_THROWS_WITH(io::read_pickle("}", "a.pt"), Contains("no end"));
}

TEST_CASE("a dictionary that holds itself ends as an error") {
  using namespace std::string_literals;
  const io::Pickle pickle = io::read_pickle("}q\0X\x01\0\0\0kh\0s."s, "a.pt");
  REQUIRE(pickle.root.items->size() == 2);
  CHECK((*pickle.root.items)[1].items == pickle.root.items);
}
