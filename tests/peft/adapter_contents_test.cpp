#include "peft/adapter_contents.h"

#include <ATen/ATen.h>

#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "io/safetensors.h"
#include "peft/tensor_bytes.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/random_adapter.h"

using namespace lorikeet;
using namespace lorikeet::peft;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

const std::string kPrefix = "base_model.model.";
using Tensors = std::map<std::string, at::Tensor>;

Tensors plain_tensors() {
  return {{kPrefix + "layers.0.q.lora_A.weight", at::ones({2, 4})},
          {kPrefix + "layers.0.q.lora_B.weight", at::ones({6, 2})}};
}

// Writes an adapter's folder by hand; `more` goes into adapter_config.json.
void write(const TemporaryFolder& folder, const Tensors& tensors, const std::string& more = "") {
  TensorBytes bytes;
  for (const auto& [name, tensor] : tensors) bytes.add(name, tensor);
  io::write_safetensors(folder / "adapter_model.safetensors", bytes.entries());
  write_file_atomic(folder / "adapter_config.json",
                    R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q"])" + more + "}");
}

std::string read_error(const Tensors& tensors, const std::string& more = "",
                       ErrorKind kind = ErrorKind::kUsage) {
  const TemporaryFolder folder;
  write(folder, tensors, more);
  return error_text([&] { read_adapter_contents(folder.path()); }, kind);
}

}  // namespace

TEST_CASE("an adapter is read by its file alone") {
  const TemporaryFolder folder;
  write(folder, plain_tensors(), R"(, "base_model_name_or_path": "somewhere", "alpha_pattern": {"q": 3})");
  const AdapterContents contents = read_adapter_contents(folder.path());
  CHECK(contents.base_model == "somewhere");
  CHECK(contents.dtype == DType::kF32);
  REQUIRE(contents.names() == std::vector<std::string>{"layers.0.q"});
  const AdapterModule& module = contents.modules.at("layers.0.q");
  CHECK(module.alpha == 3);
  CHECK(module.update.scale == 1.5);
  CHECK(module.update.out_features() == 6);
  CHECK(module.update.in_features() == 4);
}

TEST_CASE("written contents are read again to the bit, with other ranks and alphas by module") {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const bool rslora : {false, true}) {
      const AdapterContents written = random_adapter(3,
                                                     {{"m.layers.0.q"},
                                                      {"m.layers.1.q"},
                                                      {"m.layers.10.q", 10, 8, 5, 7.5},
                                                      {"m.layers.1.up", 4, 9, 2, 6}},
                                                     dtype, rslora);
      const TemporaryFolder folder;
      write_adapter_contents(folder.path(), written);
      const AdapterContents read = read_adapter_contents(folder.path());
      CHECK(read.dtype == dtype);
      CHECK(read.config.rank == 3);
      CHECK(read.config.alpha == 6);
      CHECK(read.config.use_rslora == rslora);
      REQUIRE(read.names() == written.names());
      for (const auto& [name, module] : written.modules) {
        const AdapterModule& other = read.modules.at(name);
        CHECK(at::equal(other.update.a, module.update.a));
        CHECK(at::equal(other.update.b, module.update.b));
        CHECK(other.update.scale == module.update.scale);
        CHECK(other.alpha == module.alpha);
      }
    }
  }
}

TEST_CASE("DoRA's magnitudes are read and written") {
  const TemporaryFolder folder, again;
  Tensors tensors = plain_tensors();
  tensors[kPrefix + "layers.0.q.lora_magnitude_vector"] = at::arange(6).to(at::kFloat);
  write(folder, tensors, R"(, "use_dora": true)");
  const AdapterContents contents = read_adapter_contents(folder.path());
  write_adapter_contents(again.path(), contents);
  const AdapterContents copy = read_adapter_contents(again.path());
  CHECK(at::equal(copy.modules.at("layers.0.q").magnitude, at::arange(6).to(at::kDouble)));
}

TEST_CASE("an embedding's factors, trained copies and the base's tables are read and written as they are") {
  const TemporaryFolder folder, again;
  Tensors tensors = plain_tensors();
  const at::Tensor a = at::randn({2, 7}), b = at::randn({5, 2}), table = at::randn({7, 5});
  tensors[kPrefix + "embed.lora_embedding_A"] = a;
  tensors[kPrefix + "embed.lora_embedding_B"] = b;
  tensors[kPrefix + "embed.base_layer.weight"] = table.to(at::kBFloat16);
  tensors[kPrefix + "lm_head.weight"] = table;
  write(folder, tensors, R"(, "modules_to_save": ["lm_head"], "alpha_pattern": {"embed": 3})");
  const auto text = read_file(folder / "adapter_config.json", 1U << 20);
  write_file_atomic(folder / "adapter_config.json",
                    std::string(text).replace(text.find(R"(["q"])"), 5, R"(["q", "embed"])"));
  const AdapterContents contents = read_adapter_contents(folder.path());
  CHECK(contents.dtype == DType::kF32);
  const AdapterModule& embedding = contents.modules.at("embed");
  CHECK(embedding.is_embedding);
  CHECK_FALSE(contents.modules.at("layers.0.q").is_embedding);
  CHECK(embedding.update.scale == 1.5);
  // The change of the table [7, 5], as PEFT adds it.
  const at::Tensor change = 1.5 * at::mm(b, a).t().to(at::kDouble);
  CHECK(relative_distance(dense(embedding), change) < 1e-6);

  write_adapter_contents(again.path(), contents);
  const auto file = io::SafetensorsFile::open(again / "adapter_model.safetensors");
  CHECK(file.tensors().size() == tensors.size());
  CHECK(file.find(kPrefix + "embed.lora_embedding_A")->shape == std::vector<std::int64_t>{2, 7});
  CHECK(file.find(kPrefix + "embed.base_layer.weight")->dtype == DType::kBF16);
  const AdapterContents copy = read_adapter_contents(again.path());
  CHECK(at::equal(copy.modules.at("embed").update.a, embedding.update.a));
  CHECK(at::equal(copy.modules.at("embed").update.b, embedding.update.b));
  CHECK(copy.modules.at("embed").alpha == 3);
  CHECK(at::equal(copy.saved.at("lm_head.weight"), table.to(at::kDouble)));
  CHECK(at::equal(copy.base_tables.at("embed"), table.to(at::kBFloat16)));
  CHECK(copy.config.modules_to_save == std::vector<std::string>{"lm_head"});
}

TEST_CASE("a folder whose tensors are torch.save's is refused with what makes safetensors of them") {
  const TemporaryFolder folder;
  write(folder, plain_tensors());
  std::filesystem::rename(folder / "adapter_model.safetensors", folder / "adapter_model.bin");
  CHECK_THAT(error_text([&] { read_adapter_contents(folder.path()); }),
             Contains("has adapter_model.bin, expected adapter_model.safetensors") &&
                 Contains("safetensors.torch.save_file"));
}

TEST_CASE("the widest dtype holds every value of both") {
  CHECK(widest(DType::kBF16, DType::kBF16) == DType::kBF16);
  CHECK(widest(DType::kBF16, DType::kF16) == DType::kF32);
  CHECK(widest(DType::kF16, DType::kF32) == DType::kF32);
  CHECK(widest(DType::kF32, DType::kF64) == DType::kF64);
}

TEST_CASE("what isn't a whole adapter is refused by name") {
  const std::string a = kPrefix + "layers.0.q.lora_A.weight", b = kPrefix + "layers.0.q.lora_B.weight";
  const auto with = [](const std::string& name, const at::Tensor& tensor) {
    Tensors tensors = plain_tensors();
    tensors[name] = tensor;
    return tensors;
  };
  const auto without = [](const std::string& name) {
    Tensors tensors = plain_tensors();
    tensors.erase(name);
    return tensors;
  };
  CHECK_THAT(read_error(plain_tensors()), Contains("no error"));
  CHECK_THAT(read_error(without(a)), Contains("'layers.0.q' has no lora_A"));
  CHECK_THAT(read_error(without(b)), Contains("'layers.0.q' has no lora_B"));
  CHECK_THAT(read_error({}), Contains("no tensors"));
  CHECK_THAT(read_error(with(kPrefix + "embed.lora_embedding_A", at::ones({2, 4}))),
             Contains("'embed' has no lora_embedding_B"));
  CHECK_THAT(read_error(with(kPrefix + "layers.0.q.lora_embedding_A", at::ones({2, 4}))),
             Contains("factors of a linear module and of an embedding"));
  CHECK_THAT(
      read_error({{kPrefix + "lm_head.weight", at::ones({2, 4})}}, R"(, "modules_to_save": ["lm_head"])"),
      Contains("modules_to_save alone"));
  CHECK_THAT(read_error({{kPrefix + "lm_head.base_layer.weight", at::ones({2, 4})}}),
             Contains("holds no tensors of an adapter"));
  CHECK_THAT(read_error(with(kPrefix + "lm_head.weight", at::ones({2, 4}))), Contains("lm_head.weight"));
  CHECK_THAT(read_error(with(kPrefix + "a(b.lora_A.weight", at::ones({2, 4}))), Contains("a(b.lora_A"));
  CHECK_THAT(read_error(with(a, at::ones({2, 4, 1}))), Contains("[2, 4, 1]"));
  CHECK_THAT(read_error(with(a, at::ones({3, 4}))), Contains("rank 3 and a lora_B of rank 2"));
  CHECK_THAT(read_error(with(a, at::ones({2, 0}))), Contains("without elements"));
  CHECK_THAT(read_error(with(a, at::ones({2, 4}, at::kInt))), Contains("floating"));
  CHECK_THAT(read_error(plain_tensors(), R"(, "rank_pattern": {"q": 3})"), Contains("says 3"));
  CHECK_THAT(read_error(plain_tensors(), R"(, "exclude_modules": ["q"])"), Contains("is no target"));
  CHECK_THAT(read_error(plain_tensors(), R"(, "use_dora": true)"), Contains("has no lora_magnitude_vector"));
  CHECK_THAT(read_error(with(kPrefix + "layers.0.q.lora_magnitude_vector", at::ones({6}))),
             Contains("use_dora isn't set"));
  CHECK_THAT(
      read_error(with(kPrefix + "layers.0.q.lora_magnitude_vector", at::ones({5})), R"(, "use_dora": true)"),
      Contains("another length"));
  CHECK_THAT(read_error(with(a, at::full({2, 4}, std::numeric_limits<double>::quiet_NaN())), "",
                        ErrorKind::kRunFailed),
             Contains("NaN or infinite"));
  const TemporaryFolder empty;
  CHECK_THAT(error_text([&] { read_adapter_contents(empty.path()); }),
             Contains("has no adapter_config.json"));
}

TEST_CASE("what no adapter file may hold isn't written") {
  const TemporaryFolder folder;
  AdapterContents adapter = random_adapter(4, {{"q"}}, DType::kF16);
  for (const double alpha : {2e6, 1e300, std::numeric_limits<double>::infinity(), 0.0}) {
    adapter.modules.at("q").alpha = alpha;
    CHECK_THAT(error_text([&] { write_adapter_contents(folder.path(), adapter); }),
               Contains("adapter_config.json: lora_alpha"));
  }
  adapter.modules.at("q").alpha = 6;
  adapter.modules.at("q").update.b.fill_(1e5);
  CHECK_THAT(error_text([&] { write_adapter_contents(folder.path(), adapter); }, ErrorKind::kRunFailed),
             Contains("q.lora_B.weight would get values beyond the range of fp16"));
  CHECK(std::filesystem::is_empty(folder.path()));
}
