#include "io/checkpoint.h"

#include "io/safetensors_writer.h"
#include "io/shard_index.h"
#include "support.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::io;
using Catch::Contains;
using test::error_text;
namespace fs = std::filesystem;

namespace {

TensorEntry bytes(const std::string& name, std::string_view data) {
  return {{name, DType::kU8, {static_cast<std::int64_t>(data.size())}}, data};
}

std::string index_of(const std::vector<std::pair<std::string, std::string>>& weights) {
  std::string out = "{\"metadata\":{\"total_size\":1},\"weight_map\":{";
  for (std::size_t i = 0; i < weights.size(); ++i)
    out += (i == 0 ? "\"" : ",\"") + weights[i].first + "\":\"" + weights[i].second + "\"";
  return out + "}}";
}

void write_index(const fs::path& folder, const std::vector<std::pair<std::string, std::string>>& weights) {
  write_file_atomic(folder / "model.safetensors.index.json", index_of(weights));
}

std::string open_error(const fs::path& folder) {
  return error_text([&] { Checkpoint::open(folder); });
}

}  // namespace

TEST_CASE("a checkpoint of one file gives its tensors by name") {
  const test::TemporaryFolder folder;
  write_safetensors(folder / "model.safetensors", {bytes("b", "123"), bytes("a", "4")});
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  REQUIRE(checkpoint.tensors().size() == 2);
  CHECK(checkpoint.find("b")->bytes == "123");
  CHECK(checkpoint.find("c") == nullptr);
  CHECK(checkpoint.total_bytes() == 4);
}

TEST_CASE("a checkpoint of shards is one set of tensors, and says which file holds which") {
  const test::TemporaryFolder folder;
  write_safetensors(folder / "m-1.safetensors", {bytes("a", "1"), bytes("b", "2")});
  write_safetensors(folder / "m-2.safetensors", {bytes("c", "3")});
  write_index(folder.path(), {{"a", "m-1.safetensors"}, {"b", "m-1.safetensors"}, {"c", "m-2.safetensors"}});
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  REQUIRE(checkpoint.files().size() == 2);
  CHECK(checkpoint.files()[checkpoint.find("c")->file].path().filename() == "m-2.safetensors");
  CHECK(checkpoint.find("a")->bytes == "1");
  checkpoint.drop_pages(*checkpoint.find("a"));
  CHECK(checkpoint.find("a")->bytes == "1");
}

TEST_CASE("a snapshot of the hub's cache, made of links, opens like any folder") {
  const test::TemporaryFolder cache;
  fs::create_directories(cache / "blobs");
  fs::create_directories(cache / "snapshots/abc");
  write_safetensors(cache / "blobs/f00", {bytes("a", "1")});
  write_safetensors(cache / "blobs/f01", {bytes("b", "2")});
  write_file_atomic(cache / "blobs/f02", index_of({{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}}));
  fs::create_symlink("../../blobs/f00", cache / "snapshots/abc/m-1.safetensors");
  fs::create_symlink("../../blobs/f01", cache / "snapshots/abc/m-2.safetensors");
  fs::create_symlink("../../blobs/f02", cache / "snapshots/abc/model.safetensors.index.json");
  CHECK(Checkpoint::open(cache / "snapshots/abc").tensors().size() == 2);
}

TEST_CASE("an index that names absent shards lists them all") {
  const test::TemporaryFolder folder;
  write_safetensors(folder / "m-1.safetensors", {bytes("a", "1")});
  fs::create_symlink("nowhere", folder / "m-3.safetensors");
  write_index(folder.path(), {{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}, {"c", "m-3.safetensors"}});
  CHECK_THAT(open_error(folder.path()),
             Contains("3 files, of which 2 are not there") && Contains("m-2.safetensors, m-3.safetensors"));
}

TEST_CASE("an index that places tensors wrongly, or shards that share one, are refused by name") {
  const test::TemporaryFolder folder;
  write_safetensors(folder / "m-1.safetensors", {bytes("a", "1")});
  write_safetensors(folder / "m-2.safetensors", {bytes("b", "1")});
  write_index(folder.path(),
              {{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}, {"gone", "m-2.safetensors"}});
  CHECK_THAT(open_error(folder.path()), Contains("1 tensor in") && Contains("gone (m-2.safetensors)"));
  write_index(folder.path(), {{"a", "m-2.safetensors"}, {"b", "m-1.safetensors"}});
  CHECK_THAT(open_error(folder.path()), Contains("2 tensors"));
  write_safetensors(folder / "m-2.safetensors", {bytes("b", "1"), bytes("a", "1")});
  write_index(folder.path(), {{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}});
  CHECK_THAT(open_error(folder.path()), Contains("'a' stands in") && Contains("m-1") && Contains("m-2"));
}

TEST_CASE("an index may name nothing but bare file names") {
  const std::string name = GENERATE(
      as<std::string>{}, "../m.safetensors", "/etc/m.safetensors", "a/m.safetensors", "..", ".", "",
      ".hidden.safetensors", "a\\\\m.safetensors", "m.bin", "a\\u0000.safetensors", "a\\n.safetensors");
  INFO(name);
  CHECK_THAT(error_text([&] { parse_shard_index(index_of({{"w", name}}), "index.json"); }),
             Contains("bare name") && Contains("w"));
}

TEST_CASE("an index without a table of weights is refused") {
  CHECK_THROWS_WITH(parse_shard_index("{}", "index.json"), Contains("weight_map"));
  CHECK_THROWS_WITH(parse_shard_index("{\"weight_map\":{}}", "index.json"), Contains("got none"));
  CHECK_THROWS_WITH(parse_shard_index("{\"weight_map\":{\"a\":1}}", "index.json"), Contains("string"));
  CHECK_THROWS_WITH(parse_shard_index("{\"weight_map\":{\"a\":\"b\",\"a\":\"c\"}}", "index.json"),
                    Contains("duplicate"));
}

TEST_CASE("a hub id given as a folder is answered with the path that downloads it") {
  CHECK_THAT(open_error("meta-llama/Llama-3.2-1B"), Contains("give it as hub:meta-llama/Llama-3.2-1B,"));
  CHECK_THAT(open_error("models/Llama-3.1-8B"), Contains("hub:PUBLISHER/Llama-3.1-8B "));
  CHECK_THAT(open_error("a/b/c"), !Contains("hub:") && Contains("there is no folder 'a/b/c'"));
  CHECK_FALSE(looks_like_hub_id("./Llama"));
  CHECK_FALSE(looks_like_hub_id("/Llama"));
  CHECK_FALSE(looks_like_hub_id("Llama/"));
  CHECK_FALSE(looks_like_hub_id("org/na me; rm"));
  CHECK_FALSE(looks_like_hub_id("-x/y"));
}

TEST_CASE("a folder without safetensors says what it has and what to do") {
  const test::TemporaryFolder folder;
  CHECK_THAT(open_error(folder.path()), Contains("got neither"));
  write_file_atomic(folder / "pytorch_model.bin", "x");
  write_file_atomic(folder / "consolidated.00.pth", "x");
  CHECK_THAT(open_error(folder.path()), Contains(".bin, .pth") && Contains("save_pretrained"));
  write_file_atomic(folder / "m-1.safetensors", "x");
  CHECK_THAT(open_error(folder.path()), Contains("is the index missing?"));
  CHECK_THAT(open_error(folder / "pytorch_model.bin"), Contains("got a file"));
  write_file_atomic(folder / "adapter_config.json", "{}");
  CHECK_THAT(open_error(folder.path()), Contains("holds a PEFT adapter, not a model"));
}

TEST_CASE("the fingerprint tells bases apart, not the way they are cut into files") {
  const test::TemporaryFolder folder;
  for (const char* name : {"one", "two", "other", "shape"}) fs::create_directory(folder / name);
  write_safetensors(folder / "one/model.safetensors", {bytes("a", "1234"), bytes("b", "2")});
  write_safetensors(folder / "two/m-1.safetensors", {bytes("a", "1234")});
  write_safetensors(folder / "two/m-2.safetensors", {bytes("b", "2")});
  write_index(folder / "two", {{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}});
  write_safetensors(folder / "other/model.safetensors", {bytes("a", "1235"), bytes("b", "2")});
  write_safetensors(folder / "shape/model.safetensors",
                    {{{"a", DType::kU8, {2, 2}}, "1234"}, bytes("b", "2")});
  const auto fingerprint = [&](const char* name) { return Checkpoint::open(folder / name).fingerprint(); };
  CHECK(fingerprint("one") == fingerprint("two"));
  CHECK(fingerprint("one") != fingerprint("other"));
  CHECK(fingerprint("one") != fingerprint("shape"));
}
