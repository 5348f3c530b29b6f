#include "models/quantized_weights.h"

#include <ATen/ATen.h>

#include <limits>
#include <memory>
#include <set>

#include "base/file.h"
#include "models/loading.h"
#include "models/quantization_config.h"
#include "models/toy_family.h"
#include "models/toy_fused.h"
#include "models/written_state.h"
#include "ops/quantized/code_books.h"
#include "ops/quantized/layout.h"
#include "ops/quantized/quantized_format.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::models;
using namespace lorikeet::test;
using Catch::Contains;
using precision::CodeBook;
using precision::FourBits;

namespace {

precision::Policy quantized_policy(const FourBits& quantization = {}) {
  precision::Policy policy = fp32_policy();
  policy.quantization = quantization;
  return policy;
}

struct Toy {
  nn::FrozenFactory factory;
  nn::CausalLM model;

  explicit Toy(const FourBits& quantization = {}, const nn::CausalLMSpec& spec = toy_spec(),
               const nn::WeightShard& shard = {})
      : factory(quantized_policy(quantization)), model(spec, factory) {
    model.store().allocate(at::kCPU, shard);
  }
};

// All bytes of a model's matrices, what nothing writes (gaps between segments) as 0.
std::vector<at::Tensor> matrices(const nn::CausalLM& model) {
  std::vector<at::Tensor> bytes;
  for (const auto& unit : model.store().units()) bytes.push_back(unit->part());
  return bytes;
}

void zero(const nn::CausalLM& model) {
  for (const at::Tensor& bytes : matrices(model)) at::Tensor(bytes).zero_();
}

at::Tensor text_tensor(const std::string& text) {
  return at::tensor(
      at::ArrayRef<std::uint8_t>(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()), at::kByte);
}

std::string state_json(const FourBits& q, at::IntArrayRef shape, double offset) {
  Json json = Json().set("quant_type", q.book == CodeBook::kNF4 ? "nf4" : "fp4").set("blocksize", q.block);
  json.set("dtype", "float32").set("shape", Json::Array{shape[0], shape[1]});
  if (q.nested_block != 0)
    json.set("nested_blocksize", q.nested_block).set("nested_dtype", "float32").set("nested_offset", offset);
  return json.dump();
}

// A checkpoint as bitsandbytes writes it: linear weights as codes with companions.
State quantized_state(const State& state, const nn::CausalLM& model, const FourBits& q) {
  State result = state;
  for (const auto& unit : model.store().units()) {
    for (const nn::WeightSegment& segment : unit->segments()) {
      if (segment.quantized == nullptr) continue;
      const std::string& name = segment.name;
      const at::Tensor weight = state.at(name);
      FourBits made = q;
      made.book = CodeBook::kNF4;
      const at::Tensor bytes = ops::quantized_matrix(weight, made).bytes;
      const ops::QuantizedLayout layout(weight.numel(), q);
      const auto floats = [&](std::int64_t begin, std::int64_t count) {
        return bytes.narrow(0, begin, count * 4).view(at::kFloat).clone();
      };
      result[name] = bytes.narrow(0, 0, layout.codes_bytes).view({-1, 1});
      result[name + ".quant_map"] = at::tensor(at::ArrayRef<float>(ops::code_book(q.book).data(), 16));
      double offset = 0;
      if (q.nested_block == 0) {
        result[name + ".absmax"] = floats(layout.scales_begin, layout.blocks);
      } else {
        result[name + ".absmax"] = bytes.narrow(0, layout.scales_begin, layout.blocks);
        result[name + ".nested_absmax"] = floats(layout.nested_scales_begin, layout.nested_blocks);
        result[name + ".nested_quant_map"] = floats(layout.nested_book_begin, 256);
        offset = floats(layout.offset_begin, 1).item<double>();
      }
      result[name + ".quant_state.bitsandbytes__" + (q.book == CodeBook::kNF4 ? "nf4" : "fp4")] =
          text_tensor(state_json(q, weight.sizes(), offset));
    }
  }
  return result;
}

}  // namespace

TEST_CASE("linear weights are quantised while they are loaded, each module by itself, in module order") {
  for (const auto& spec : {toy_spec(), fused_toy_spec()}) {
    const TemporaryFolder folder;
    Toy loaded({}, spec), filled({}, spec);
    const State state = toy_state(loaded.model, 7);
    zero(loaded.model);
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

TEST_CASE("parts of a quantised model that several processes load are the whole, and so are their digests") {
  const TemporaryFolder folder;
  Toy whole;
  zero(whole.model);
  const State state = toy_state(whole.model, 7);
  const bool stored_so = GENERATE(false, true);
  const io::Checkpoint checkpoint =
      written(folder, stored_so ? quantized_state(state, whole.model, {}) : state);
  const WeightDigests digests = load_and_digest_weights(whole.model, checkpoint);
  for (const int size : {2, 3}) {
    std::vector<std::vector<at::Tensor>> parts(whole.model.store().units().size());
    std::vector<std::string> texts;
    for (int rank = 0; rank < size; ++rank) {
      Toy part({}, toy_spec(), {rank, size});
      zero(part.model);
      texts.push_back(digests_text(load_and_digest_weights(part.model, checkpoint, {rank, size})));
      const auto held = matrices(part.model);
      for (std::size_t u = 0; u < parts.size(); ++u) parts[u].push_back(held[u]);
    }
    for (std::size_t u = 0; u < parts.size(); ++u) {
      const at::Tensor expected = whole.model.store().units()[u]->part();
      CHECK(at::equal(at::cat(parts[u]).slice(0, 0, expected.numel()), expected));
    }
    CHECK(digests_text(combine_digests(digests, texts, size)) == digests_text(digests));
  }
}

TEST_CASE("a checkpoint that bitsandbytes quantised is read as it is") {
  for (const FourBits& q :
       {FourBits{}, FourBits{.nested_block = 0}, FourBits{.book = CodeBook::kFP4, .nested_block = 0}}) {
    INFO(describe(q));
    const TemporaryFolder folder;
    Toy toy(q);
    const State state = toy_state(toy.model, 7), in_file = quantized_state(state, toy.model, q);
    const io::Checkpoint checkpoint = written(folder, in_file);
    const LoadReport report = compare_weights(toy.model, checkpoint);
    CHECK(report.complete());
    CHECK(report.unexpected.empty());
    load_weights(toy.model, checkpoint);
    for (const auto& unit : toy.model.store().units()) {
      for (std::size_t i = 0; i < unit->segments().size(); ++i) {
        const nn::WeightSegment& segment = unit->segments()[i];
        if (segment.quantized == nullptr) continue;
        const at::Tensor codes = in_file.at(segment.name).flatten();
        CHECK(at::equal(unit->held(i).values.slice(0, 0, codes.numel()), codes));
        const nn::UnitLoan loan{unit.get(), unit->part()};
        const at::Tensor numbers = loan.matrix(i, segment.shape[0], segment.shape[1]).dense(at::kFloat);
        // 4 bits of a normal number: near, but for another book.
        if (q.book == CodeBook::kNF4)
          CHECK((numbers - state.at(segment.name)).abs().mean().item<double>() < 0.05);
      }
    }
  }
}

TEST_CASE("damaged quantisation states are refused by the tensor's name") {
  Toy toy;
  const State good = quantized_state(toy_state(toy.model, 7), toy.model, {});
  const std::string name = "transformer.h.1.ffn.w1.weight";
  const std::string state = name + ".quant_state.bitsandbytes__nf4";
  REQUIRE(good.contains(name + ".absmax"));
  const at::IntArrayRef shape = toy_state(toy.model, 7).at(name).sizes();
  const std::vector<std::int64_t> extents = shape.vec();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto swapped = [&](const std::string& tensor) {
    at::Tensor book = good.at(tensor).clone();
    book[3] = book[5].item<float>();
    return book;
  };
  struct Fault {
    std::string tensor, says;
    at::Tensor value;  // undefined: it is absent
  };
  const std::vector<Fault> faults{
      {name, "bytes of codes", good.at(name).slice(0, 1)},
      {name + ".absmax", "no such tensor", {}},
      {name + ".absmax", "of uint8", good.at(name + ".absmax").slice(0, 1)},
      {name + ".absmax", "of uint8", good.at(name + ".absmax").to(at::kFloat)},
      {name + ".nested_absmax", "finite numbers", good.at(name + ".nested_absmax") * nan},
      {name + ".nested_absmax", "of fp32", at::ones({9})},
      {name + ".nested_quant_map", "ascends", swapped(name + ".nested_quant_map")},
      {name + ".nested_quant_map", "of fp32", at::ones({16})},
      {name + ".quant_map", "ascends", swapped(name + ".quant_map")},
      {name + ".quant_map", "finite", at::full({16}, nan)},
      {state, "quant_state", text_tensor("{\"quant_type\": \"nf4\"")},
      {state, "blocksize 64", text_tensor(state_json({.block = 32}, extents, 0))},
      {state, "nested_blocksize 256", text_tensor(state_json({.nested_block = 128}, extents, 0))},
      {state, "nested scales", text_tensor(state_json({.nested_block = 0}, extents, 0))},
      {state, "'fp4'", text_tensor(state_json({.book = CodeBook::kFP4}, extents, 0))},
      {state, "the shape", text_tensor(state_json({}, {extents[1], extents[0] + 1}, 0))},
      {state, "a possible shape", text_tensor(state_json({}, {0, extents[1]}, 0))},
      {state, "a possible shape", text_tensor(state_json({}, {1LL << 40, 1LL << 40}, 0))},
      {state, "a possible blocksize", text_tensor(state_json({.block = -64}, extents, 0))},
      {state, "a finite nested_offset", text_tensor(state_json({}, extents, 1e300))},
      {state, "uint8", good.at(name + ".quant_map")}};
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
    CHECK_THAT(error_text([&] { compare_weights(toy.model, checkpoint); }),
               Contains(fault.tensor) && Contains(fault.says));
  }
}

TEST_CASE("a linear weight in 16 bits among quantised ones is a mismatch: it isn't quantised silently") {
  const TemporaryFolder folder;
  Toy toy;
  const State numbers = toy_state(toy.model, 7);
  const std::string name = "transformer.h.1.ffn.w1.weight";
  State state = quantized_state(numbers, toy.model, {});
  for (const char* companion :
       {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".quant_state.bitsandbytes__nf4"})
    state.erase(name + companion);
  state[name] = numbers.at(name).to(at::kBFloat16);
  const LoadReport report = compare_weights(toy.model, written(folder, state));
  REQUIRE(report.mismatched.size() == 1);
  CHECK_THAT(report.mismatched.front(), Contains(name) && Contains("got bf16"));
}

TEST_CASE(
    "modules that a checkpoint leaves as numbers are held so, and those that share a matrix with them") {
  const TemporaryFolder folder;
  Toy toy;
  const State numbers = toy_state(toy.model, 7);
  State state = quantized_state(numbers, toy.model, {});
  // The second is one of two in its group.
  const std::set<std::string> plain{"transformer.h.0.attn.dense", "transformer.h.1.ffn.w1"};
  for (const std::string& module : plain) {
    const std::string name = module + ".weight";
    for (const char* companion :
         {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".quant_state.bitsandbytes__nf4"})
      state.erase(name + companion);
    state[name] = numbers.at(name);
  }
  const io::Checkpoint checkpoint = written(folder, state);
  const auto made = [&](const nn::WeightShard& shard) {
    nn::FrozenFactory factory(quantized_policy());
    factory.keep_plain([&](const std::string& module) { return plain.contains(module); });
    auto model = std::make_unique<nn::CausalLM>(toy_spec(), factory);
    CHECK(compare_weights(*model, checkpoint).complete());
    model->store().allocate(at::kCPU, shard);
    zero(*model);
    return model;
  };
  const auto model = made({});
  const WeightDigests digests = load_and_digest_weights(*model, checkpoint);
  std::set<std::string> held_plain;
  for (const auto& unit : model->store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) {
      const nn::WeightSegment& segment = unit->segments()[i];
      if (segment.decoded_from == nullptr) continue;
      CAPTURE(segment.name);
      const std::string module = segment.name.substr(0, segment.name.size() - std::string(".weight").size());
      held_plain.insert(module);
      const at::Tensor& weight = numbers.at(segment.name);
      const at::Tensor expected =
          plain.contains(module) ? weight : ops::quantized_matrix(weight, FourBits{}).dense(at::kFloat);
      CHECK(at::equal(unit->tensor(i), expected));
    }
  }
  CHECK(held_plain == std::set<std::string>{"transformer.h.0.attn.dense", "transformer.h.1.ffn.w1",
                                            "transformer.h.1.ffn.w3"});
  // Two processes hold its halves, and hash it once.
  std::vector<std::vector<at::Tensor>> halves;
  std::vector<std::string> texts;
  for (const int rank : {0, 1}) {
    const nn::WeightShard shard{.rank = rank, .size = 2};
    const auto half = made(shard);
    texts.push_back(digests_text(load_and_digest_weights(*half, checkpoint, shard)));
    halves.push_back(matrices(*half));
  }
  const std::vector<at::Tensor> whole = matrices(*model);
  for (std::size_t u = 0; u < whole.size(); ++u)
    CHECK(at::equal(at::cat({halves[0][u], halves[1][u]}).slice(0, 0, whole[u].numel()), whole[u]));
  CHECK(digests_text(combine_digests(digests, texts, 2)) == digests_text(digests));
}

TEST_CASE("weights that aren't finite are refused by name when they are quantised") {
  const TemporaryFolder folder;
  Toy toy;
  State state = toy_state(toy.model, 7);
  state["transformer.h.1.ffn.w1.weight"][0][1] = std::numeric_limits<float>::infinity();
  const io::Checkpoint checkpoint = written(folder, state);
  CHECK_THAT(error_text([&] { load_weights(toy.model, checkpoint); }),
             Contains("transformer.h.1.ffn.w1.weight") && Contains("finite"));
}

TEST_CASE("a quantised checkpoint for a model of numbers is a mismatch") {
  const TemporaryFolder folder;
  Toy toy;
  const io::Checkpoint checkpoint = written(folder, quantized_state(toy_state(toy.model, 7), toy.model, {}));
  nn::FrozenFactory factory(fp32_policy());
  const nn::CausalLM model(toy_spec(), factory);
  const LoadReport report = compare_weights(model, checkpoint);
  REQUIRE_FALSE(report.complete());
  CHECK_THAT(report.mismatched.front(), Contains("bitsandbytes"));
}

TEST_CASE("a checkpoint of numbers whose config.json has a quantisation is a mismatch: it isn't quantised") {
  const TemporaryFolder folder;
  const Toy toy;
  const io::Checkpoint checkpoint = written(folder, toy_state(toy.model, 7));
  write_file_atomic(folder / "config.json", "{}");
  CHECK(compare_weights(toy.model, checkpoint).complete());  // a run's own precision.base_storage
  write_file_atomic(folder / "config.json", R"({"quantization_config": {"quant_method": "bitsandbytes",
      "load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true}})");
  const LoadReport report = compare_weights(toy.model, checkpoint);
  REQUIRE(report.mismatched.size() == 1);
  CHECK_THAT(report.mismatched.front(), Contains("quantization_config") && Contains("got numbers"));
}

TEST_CASE("config.json says how a checkpoint is quantised") {
  const auto read = [](const std::string& settings) {
    const Json json = Json::parse("{\"quantization_config\": " + settings + "}", "config.json");
    return quantization_in_config(JsonView(json, "config.json"));
  };
  CHECK(read("null") == std::nullopt);
  CHECK(read(R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4",
                 "bnb_4bit_use_double_quant": true})") == precision::Quantization(FourBits{}));
  CHECK(read(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})") ==
        precision::Quantization(FourBits{.book = CodeBook::kFP4, .nested_block = 0}));
  CHECK_THAT(error_text([&] { read(R"({"quant_method": "gptq", "bits": 4})"); }),
             Contains("quantization_config") && Contains("gptq"));
  CHECK_THAT(error_text([&] { read(R"({"quant_method": "bitsandbytes", "load_in_8bit": true})"); }),
             Contains("8 bits"));
}
