// Checkpoints whose linear weights are in fp8, and models that bring them there while loading.
#include <ATen/ATen.h>

#include <limits>

#include "models/loading.h"
#include "models/quantization_config.h"
#include "models/quantized_weights.h"
#include "models/toy_family.h"
#include "models/toy_fused.h"
#include "models/written_state.h"
#include "ops/quantized/float8_matrix.h"
#include "ops/quantized/quantized_format.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::models;
using namespace lorikeet::test;
using Catch::Contains;
using precision::Float8;

namespace {

constexpr const char* kWeight = "transformer.h.1.ffn.w1.weight";

struct Toy {
  nn::FrozenFactory factory;
  nn::CausalLM model;

  explicit Toy(const Float8& how = {}, const nn::CausalLMSpec& spec = toy_spec(),
               const nn::WeightShard& shard = {})
      : factory(policy(how)), model(spec, factory) {
    model.store().allocate(at::kCPU, shard);
    for (const auto& unit : model.store().units()) at::Tensor(unit->part()).zero_();
  }
  static precision::Policy policy(const Float8& how) {
    precision::Policy policy = fp32_policy();
    policy.quantization = how;
    return policy;
  }
};

// How a tool writes scales: the companion's name, dtype, and whether a scale a row is a column.
struct Writer {
  const char* companion;
  at::ScalarType dtype;
  bool columns;
};

// Linear weights as codes with scales of blocks.
State float8_state(const State& state, const nn::CausalLM& model, const Float8& how, const Writer& writer) {
  State result = state;
  for (const auto& unit : model.store().units()) {
    for (const nn::WeightSegment& segment : unit->segments()) {
      if (segment.quantized == nullptr) continue;
      const ops::Float8Layout layout(segment.shape[0], segment.shape[1], how);
      const at::Tensor scales = (at::rand({layout.scale_rows, layout.scale_cols}) + 0.5).to(writer.dtype);
      result[segment.name] = state.at(segment.name).to(at::kFloat8_e4m3fn);
      result[segment.name + writer.companion] = writer.columns ? scales : scales.flatten();
      if (how.block_rows == 0) result[segment.name + writer.companion] = scales[0][0];
    }
  }
  return result;
}

const Writer kFinegrained{"_scale_inv", at::kFloat, true};

}  // namespace

TEST_CASE("linear weights are brought to fp8 while they are loaded, each module by itself") {
  for (const auto& spec : {toy_spec(), fused_toy_spec()}) {
    const TemporaryFolder folder;
    Toy loaded({}, spec), filled({}, spec);
    const State state = toy_state(loaded.model, 7);
    load_weights(loaded.model, written(folder, state));
    fill(filled.model, state);
    for (std::size_t u = 0; u < loaded.model.store().units().size(); ++u) {
      const nn::WeightUnit& unit = *loaded.model.store().units()[u];
      const nn::WeightUnit& expected = *filled.model.store().units()[u];
      for (std::size_t i = 0; i < unit.segments().size(); ++i)
        CHECK(at::equal(unit.held(i).values, expected.held(i).values));
    }
  }
}

TEST_CASE("checkpoints in fp8 are read as they are: by blocks, rows, and one scale") {
  const std::pair<Float8, Writer> cases[] = {{{128, 128}, kFinegrained},
                                             {{3, 5}, {"_scale_inv", at::kBFloat16, true}},
                                             {{1, 0}, {"_scale", at::kBFloat16, true}},
                                             {{1, 0}, {"_scale", at::kFloat, false}},
                                             {{0, 0}, {"_scale", at::kHalf, true}},
                                             {{0, 0}, kFinegrained}};
  for (const auto& [how, writer] : cases) {
    INFO(describe(how) << writer.companion);
    const TemporaryFolder folder;
    Toy toy(how);
    State in_file = float8_state(toy_state(toy.model, 7), toy.model, how, writer);
    in_file["transformer.h.1.ffn.w1.input_scale"] = at::ones({1});  // of activations: not used
    in_file["transformer.h.1.ffn.w2.activation_scale"] = at::ones({});
    const io::Checkpoint checkpoint = written(folder, in_file);
    const LoadReport report = compare_weights(toy.model, checkpoint);
    CHECK(report.complete());
    CHECK(report.unexpected.empty());
    load_weights(toy.model, checkpoint);
    for (const auto& unit : toy.model.store().units()) {
      for (std::size_t i = 0; i < unit->segments().size(); ++i) {
        const nn::WeightSegment& segment = unit->segments()[i];
        if (segment.quantized == nullptr) continue;
        const ops::Float8Layout layout(segment.shape[0], segment.shape[1], how);
        const at::Tensor scales = in_file.at(segment.name + writer.companion)
                                      .to(at::kFloat)
                                      .view({layout.scale_rows, layout.scale_cols})
                                      .repeat_interleave(layout.block_rows, 0)
                                      .repeat_interleave(layout.block_cols, 1)
                                      .slice(0, 0, layout.rows)
                                      .slice(1, 0, layout.cols);
        const at::Tensor expected = in_file.at(segment.name).to(at::kFloat) * scales;
        const nn::UnitLoan loan{unit.get(), unit->part()};
        CHECK(at::equal(loan.matrix(i, layout.rows, layout.cols).dense(at::kFloat), expected));
        const io::TensorView& view = *checkpoint.find(segment.name);
        CHECK(at::equal(dequantized(checkpoint, view, how), expected));
      }
    }
  }
}

TEST_CASE("parts of a model in fp8 that several processes load are the whole, and so are their digests") {
  const TemporaryFolder folder;
  Toy whole;
  const State state = toy_state(whole.model, 7);
  const bool stored_so = GENERATE(false, true);
  const io::Checkpoint checkpoint =
      written(folder, stored_so ? float8_state(state, whole.model, {}, kFinegrained) : state);
  const WeightDigests digests = load_and_digest_weights(whole.model, checkpoint);
  constexpr int kSize = 3;
  std::vector<std::vector<at::Tensor>> parts(whole.model.store().units().size());
  std::vector<std::string> texts;
  for (int rank = 0; rank < kSize; ++rank) {
    Toy part({}, toy_spec(), {rank, kSize});
    texts.push_back(digests_text(load_and_digest_weights(part.model, checkpoint, {rank, kSize})));
    for (std::size_t u = 0; u < parts.size(); ++u) parts[u].push_back(part.model.store().units()[u]->part());
  }
  for (std::size_t u = 0; u < parts.size(); ++u) {
    const at::Tensor expected = whole.model.store().units()[u]->part();
    CHECK(at::equal(at::cat(parts[u]).slice(0, 0, expected.numel()), expected));
  }
  CHECK(digests_text(combine_digests(digests, texts, kSize)) == digests_text(digests));
}

TEST_CASE("damaged fp8 tensors are refused by name") {
  const Float8 how{128, 128};
  Toy toy(how);
  const State good = float8_state(toy_state(toy.model, 7), toy.model, how, kFinegrained);
  const std::string scale = std::string(kWeight) + "_scale_inv";
  const at::Tensor codes = good.at(kWeight);
  at::Tensor broken = codes.view(at::kByte).clone();
  broken[0][1] = 0xFF;
  struct Fault {
    std::string tensor, says;
    at::Tensor value;  // undefined: it is absent
  };
  const std::vector<Fault> faults{
      {scale, "_scale beside it", {}},
      {scale, "floating numbers", at::ones({7, 1})},
      {scale, "of int64", at::ones({1, 1}, at::kLong)},
      {scale, "finite", at::full({1, 1}, std::numeric_limits<float>::quiet_NaN())},
      {scale, "negative", at::full({1, 1}, -1.0F)},
      {kWeight, "the shape", codes.view(at::kByte).slice(0, 1).view(at::kFloat8_e4m3fn)},
      {kWeight, "NaN among its codes", broken.view(at::kFloat8_e4m3fn)},
      {kWeight, "got bf16", toy_state(toy.model, 7).at(kWeight).to(at::kBFloat16)}};
  for (const Fault& fault : faults) {
    INFO(fault.tensor << " " << fault.says);
    const TemporaryFolder folder;
    State bad = good;
    if (fault.value.defined()) {
      bad[fault.tensor] = fault.value;
    } else {
      bad.erase(fault.tensor);
    }
    const io::Checkpoint checkpoint = written(folder, bad);
    const std::string text = error_text([&] {
      require_complete(compare_weights(toy.model, checkpoint), checkpoint);
      load_weights(toy.model, checkpoint);
    });
    CHECK_THAT(text, Contains(kWeight) && Contains(fault.says));
  }
}

TEST_CASE("a checkpoint in fp8 for a model of numbers, or of 4 bits, is a mismatch") {
  const TemporaryFolder folder;
  Toy toy;
  const io::Checkpoint checkpoint =
      written(folder, float8_state(toy_state(toy.model, 7), toy.model, {}, kFinegrained));
  nn::FrozenFactory numbers(fp32_policy());
  const nn::CausalLM plain(toy_spec(), numbers);
  const LoadReport report = compare_weights(plain, checkpoint);
  REQUIRE_FALSE(report.complete());
  CHECK_THAT(report.mismatched.front(), Contains("got fp8"));
  precision::Policy four_bits = fp32_policy();
  four_bits.quantization = precision::FourBits{};
  nn::FrozenFactory factory(four_bits);
  const nn::CausalLM other(toy_spec(), factory);
  CHECK_THAT(error_text([&] { compare_weights(other, checkpoint); }),
             Contains("expected nf4") && Contains("got fp8"));
}

TEST_CASE("config.json says how a checkpoint in fp8 has its scales") {
  const auto read = [](const std::string& settings) {
    const Json json = Json::parse("{\"quantization_config\": " + settings + "}", "config.json");
    return quantization_in_config(JsonView(json, "config.json"));
  };
  const auto compressed = [&](const std::string& weights) {
    return read(R"({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
                    "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": {"dynamic": true},
                    "weights": )" +
                weights + "}}}");
  };
  const auto is = [](const auto& found, const Float8& how) { return found == precision::Quantization(how); };
  CHECK(is(read(R"({"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                    "weight_block_size": [128, 128]})"),
           {128, 128}));
  CHECK(is(read(R"({"quant_method": "fp8", "weight_block_size": null})"), {0, 0}));
  CHECK(is(read(R"({"quant_method": "fbgemm_fp8"})"), {1, 0}));
  CHECK(is(compressed(R"({"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true})"),
           {1, 0}));
  CHECK(is(compressed(R"({"num_bits": 8, "type": "float", "strategy": "tensor"})"), {0, 0}));
  CHECK(
      is(compressed(R"({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 64]})"),
         {128, 64}));
  const std::pair<std::string, std::string> refused[] = {
      {R"({"num_bits": 8, "type": "int", "strategy": "channel"})", "8 bits of type 'int'"},
      {R"({"num_bits": 4, "type": "float", "strategy": "tensor"})", "4 bits"},
      {R"({"num_bits": 8, "type": "float", "strategy": "group"})", "strategy"},
      {R"({"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": false})", "symmetric"},
      {R"({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128]})", "two extents"},
      {R"({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [0, 128]})", "extent"}};
  for (const auto& [weights, says] : refused)
    CHECK_THAT(error_text([&, text = weights] { compressed(text); }),
               Contains("quantization_config") && Contains(says));
  CHECK_THAT(error_text([&] { read(R"({"quant_method": "fp8", "fmt": "e5m2"})"); }), Contains("e4m3"));
  CHECK_THAT(error_text([&] { read(R"({"quant_method": "compressed-tensors", "config_groups": {}})"); }),
             Contains("without quantised weights"));
}
