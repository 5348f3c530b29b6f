#include "models/fingerprint.h"

#include <ATen/ATen.h>

#include "io/safetensors_writer.h"
#include "llama_json.h"
#include "models/llama/llama.h"
#include "models/loading.h"
#include "models/toy_family.h"
#include "peft/tensor_bytes.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::models;
using namespace lorikeet::test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

// Wide enough that the embedding has several blocks, and that parts are cut within one.
const char* const kWide = R"({"vocab_size": 3000, "hidden_size": 256, "intermediate_size": 320})";

nn::CausalLMSpec spec_of(const std::string& changes) {
  const Json json = llama_json(changes);
  return llama_spec(JsonView(json, "config.json"));
}

std::string fingerprint_of(const std::string& changes) {
  return base_fingerprint(nn::architecture(spec_of(changes)), {});
}

struct Wide {
  nn::FrozenFactory factory{fp32_policy()};
  nn::CausalLM model{spec_of(kWide), factory};
  State state = toy_state(model, 3);

  Wide() { model.store().allocate(at::kCPU); }

  // Writes the tensors `[from, to)` of the state, in the order of their names.
  void write(const fs::path& path, std::size_t from, std::size_t to) const {
    peft::TensorBytes tensors;
    std::size_t i = 0;
    for (const auto& [name, tensor] : state) {
      if (i >= from && i < to) tensors.add(name, tensor);
      ++i;
    }
    io::write_safetensors(path, tensors.entries());
  }
  void write_all(const fs::path& folder) const { write(folder / "model.safetensors", 0, state.size()); }

  WeightDigests digests(const fs::path& folder) {
    return load_and_digest_weights(model, io::Checkpoint::open(folder));
  }
};

}  // namespace

TEST_CASE("what config.json says about a model's numbers is in its base's fingerprint") {
  const std::string base = fingerprint_of("{}");
  for (const char* change :
       {R"({"rope_theta": 10000.0})", R"({"rms_norm_eps": 1e-6})", R"({"num_attention_heads": 4})",
        R"({"num_key_value_heads": 4})", R"({"head_dim": 16})", R"({"tie_word_embeddings": true})",
        R"({"num_hidden_layers": 3})", R"({"attention_bias": true})", R"({"mlp_bias": true})",
        R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0}})"}) {
    CAPTURE(change);
    CHECK(fingerprint_of(change) != base);
  }
}

TEST_CASE("what doesn't change numbers, and the generation of config.json, is not in its fingerprint") {
  const std::string base = fingerprint_of("{}");
  for (const char* change :
       {R"({"transformers_version": "5.23.0"})", R"({"use_cache": false, "_name_or_path": "x"})",
        R"({"torch_dtype": "bfloat16"})", R"({"dtype": "bfloat16"})", R"({"head_dim": 8})",
        R"({"max_position_embeddings": 1024})",
        R"({"rope_theta": null, "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}})"}) {
    CAPTURE(change);
    CHECK(fingerprint_of(change) == base);
  }
  const std::string scaling = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                 "original_max_position_embeddings": 8192)";
  const std::string older = fingerprint_of(R"({"rope_scaling": {"rope_type": "llama3", )" + scaling + "}}");
  CHECK(older == fingerprint_of(R"({"rope_theta": null, "rope_parameters": {"rope_theta": 500000.0,
                                    "rope_type": "llama3", )" +
                                scaling + "}}"));
  CHECK(older != base);
}

TEST_CASE("weights are hashed while they are loaded, the same from one file and from several") {
  const TemporaryFolder folder;
  Wide wide;
  for (const char* name : {"one", "two"}) fs::create_directory(folder / name);
  wide.write_all(folder / "one");
  wide.write(folder / "two/m-1.safetensors", 0, 5);
  wide.write(folder / "two/m-2.safetensors", 5, wide.state.size());
  Json map{Json::Object{}};
  std::size_t i = 0;
  for (const auto& [name, tensor] : wide.state)
    map.set(name, i++ < 5 ? "m-1.safetensors" : "m-2.safetensors");
  write_file_atomic(folder / "two/model.safetensors.index.json", Json().set("weight_map", map).dump());
  const WeightDigests one = wide.digests(folder / "one");
  CHECK((one == wide.digests(folder / "two")));
  const io::Checkpoint checkpoint = io::Checkpoint::open(folder / "one");
  REQUIRE(one.size() == wide.state.size());
  for (const auto& [name, digest] : one) CHECK(digest == io::digest_of(*checkpoint.find(name)));
}

TEST_CASE("one flipped bit in the middle of a large tensor is found and named") {
  const TemporaryFolder folder;
  Wide wide;
  wide.write_all(folder.path());
  const WeightDigests before = wide.digests(folder.path());
  const nn::Architecture architecture = nn::architecture(spec_of(kWide));
  const std::string sampled = io::Checkpoint::open(folder.path()).fingerprint();
  std::string bytes = read_file(folder / "model.safetensors");
  {
    const io::Checkpoint checkpoint = io::Checkpoint::open(folder.path());
    const io::TensorView& view = *checkpoint.find("model.embed_tokens.weight");
    REQUIRE(view.bytes.size() > 2 * io::TensorDigest::kBlockBytes);
    const std::size_t at = bytes.find(view.bytes.substr(0, 64)) + view.bytes.size() / 3;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  }
  write_file_atomic(folder / "model.safetensors", bytes);
  const WeightDigests now = wide.digests(folder.path());
  CHECK(changed_tensors(before, now) == std::vector<std::string>{"model.embed_tokens.weight"});
  CHECK(base_fingerprint(architecture, before) != base_fingerprint(architecture, now));
  CHECK(io::Checkpoint::open(folder.path()).fingerprint() == sampled);  // which is why samples aren't enough
}

TEST_CASE("the digests of the parts that several processes load are together the whole's") {
  const TemporaryFolder folder;
  Wide wide;
  wide.write_all(folder.path());
  const io::Checkpoint checkpoint = io::Checkpoint::open(folder.path());
  const WeightDigests whole = wide.digests(folder.path());
  for (const int size : {1, 2, 3}) {
    std::vector<std::string> texts;
    for (int rank = 0; rank < 2 * size; ++rank) {
      nn::CausalLM part(spec_of(kWide), wide.factory);
      part.store().allocate(at::kCPU, {rank % size, size});
      texts.push_back(digests_text(load_and_digest_weights(part, checkpoint, {rank % size, size})));
    }
    CHECK((combine_digests(whole, texts, size) == whole));
  }
}

TEST_CASE("ranks that read other weights are an error that names a tensor and both") {
  WeightDigests names{{"a", {}}, {"b", {}}}, other = names;
  other["b"].add_block({"b", DType::kU8, {1}, "x"}, 0);
  const std::string text = digests_text(names), changed = digests_text(other);
  CHECK((combine_digests(names, {text, text}, 1) == names));
  CHECK((combine_digests(names, {text, changed, changed, text}, 2) == other));  // two copies, cut differently
  CHECK_THAT(error_text([&] { combine_digests(names, {text, text, text, changed}, 2); }),
             Contains("1 of 2 tensors, b among them, differ between rank 0 and rank 2"));
  CHECK_THAT(error_text([&] { combine_digests(names, {text, "00"}, 1); }), Contains("of 2 tensors"));
}
