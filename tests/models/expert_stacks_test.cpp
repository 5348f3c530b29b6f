// Checkpoints that stack the matrices of a layer's experts in one tensor: they load as those that hold each
// by itself.
#include "models/expert_stacks.h"

#include <ATen/ATen.h>

#include <cmath>

#include "llama_json.h"
#include "models/experts.h"
#include "models/llama/llama.h"
#include "models/loading.h"
#include "models/written_state.h"
#include "ops/quantized/quantized_format.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::models;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

constexpr std::int64_t kExperts = 3, kHidden = 64, kWidth = 96;
const std::string kBlock = "model.layers.0.mlp.experts.";

using Stacks = std::vector<io::CheckpointNames::ExpertStack>;

Stacks stacks_of(bool interleaved, bool transposed) {
  return {{"gate_up_proj", {"gate_proj", "up_proj"}, interleaved, transposed},
          {"down_proj", {"down_proj"}, false, transposed}};
}

nn::CausalLMSpec spec_of(const Stacks& stacks) {
  const Json json = llama_json(R"({"num_hidden_layers": 1})");
  nn::CausalLMSpec spec = llama_spec(JsonView(json, "config.json"));
  set_experts(spec, {.prefix = "",
                     .hidden_size = kHidden,
                     .intermediate_size = kWidth,
                     .count = kExperts,
                     .router = {.per_token = 2},
                     .router_bias = true,
                     .bias = true});
  spec.checkpoint_names.expert_stacks = stacks;
  return spec;
}

precision::Policy policy_of(DType storage,
                            const std::optional<precision::Quantization>& quantization = std::nullopt) {
  precision::Policy policy = fp32_policy();
  policy.base_storage = storage;
  policy.quantization = quantization;
  return policy;
}

std::string of_expert(std::int64_t expert, const std::string& module) {
  return kBlock + std::to_string(expert) + "." + module;
}

// Takes the tensors NUMBER.MODULE.`kind` of all experts out of `state`, those of several modules as rows
// after each other or in turn: [experts, rows...].
at::Tensor take_stack(State& state, const io::CheckpointNames::ExpertStack& stack, const std::string& kind) {
  std::vector<at::Tensor> experts;
  for (std::int64_t e = 0; e < kExperts; ++e) {
    std::vector<at::Tensor> modules;
    for (const std::string& module : stack.modules)
      modules.push_back(state.extract(of_expert(e, module) + kind).mapped());
    experts.push_back(stack.interleaved ? at::stack(modules, 1).flatten(0, 1) : at::cat(modules));
  }
  return at::stack(experts);
}

State stacked(State state, const Stacks& stacks) {
  for (const auto& stack : stacks) {
    const at::Tensor weights = take_stack(state, stack, ".weight");
    state[kBlock + stack.tensor] = stack.transposed ? weights.transpose(1, 2).contiguous() : weights;
    state[kBlock + stack.tensor + "_bias"] = take_stack(state, stack, ".bias");
  }
  return state;
}

struct Loaded {
  nn::FrozenFactory factory;
  nn::CausalLM model;
  WeightDigests digests;

  Loaded(const Stacks& stacks, const precision::Policy& policy, const State& state,
         const nn::WeightShard& shard = {})
      : factory(policy), model(spec_of(stacks), factory) {
    const TemporaryFolder folder;
    io::Checkpoint checkpoint = written(folder, state);
    name_expert_parts(checkpoint, model.spec().checkpoint_names);
    const LoadReport report = compare_weights(model, checkpoint);
    CHECK(report.unexpected == std::vector<std::string>{});
    require_complete(report, checkpoint);
    model.store().allocate(at::kCPU, shard);
    for (const auto& unit : model.store().units()) unit->part().zero_();
    digests = load_and_digest_weights(model, checkpoint, shard);
  }
};

State random_state() {
  nn::FrozenFactory factory(fp32_policy());
  return toy_state(nn::CausalLM(spec_of({}), factory), 5);
}

void check_equal(const Loaded& a, const Loaded& b) {
  for (std::size_t u = 0; u < a.model.store().units().size(); ++u) {
    const nn::WeightUnit &of_a = *a.model.store().units()[u], &of_b = *b.model.store().units()[u];
    CHECK(at::equal(of_a.part(), of_b.part()));
    for (std::size_t i = 0; i < of_a.segments().size(); ++i) {
      if (!of_a.segments()[i].is_matrix()) CHECK(at::equal(of_a.held(i).values, of_b.held(i).values));
    }
  }
}

std::string refusal(State state, const std::string& name, const at::Tensor& tensor) {
  state[kBlock + name] = tensor;
  const TemporaryFolder folder;
  io::Checkpoint checkpoint = written(folder, state);
  return error_text([&] { name_expert_parts(checkpoint, spec_of(stacks_of(true, true)).checkpoint_names); });
}

}  // namespace

TEST_CASE("stacked experts load as experts by themselves, whichever way their rows lie, in every storage") {
  const State state = random_state();
  for (const auto& [storage, quantization] :
       {std::pair{DType::kF32, std::optional<precision::Quantization>()},
        {DType::kBF16, std::nullopt},
        {DType::kBF16, precision::FourBits{}},
        {DType::kBF16, precision::Float8{}}}) {
    const precision::Policy policy = policy_of(storage, quantization);
    const Loaded by_themselves({}, policy, state);
    for (const bool interleaved : {false, true}) {
      for (const bool transposed : {false, true}) {
        CAPTURE(interleaved, transposed, dtype_name(storage), quantization.has_value());
        const Stacks stacks = stacks_of(interleaved, transposed);
        const Loaded loaded(stacks, policy, stacked(state, stacks));
        check_equal(loaded, by_themselves);
        CHECK((loaded.digests == by_themselves.digests));
        // Another order of rows is other weights.
        if (interleaved) continue;
        const Loaded otherwise(stacks_of(true, transposed), policy, stacked(state, stacks));
        CHECK_FALSE((otherwise.digests == by_themselves.digests));
      }
    }
  }
}

TEST_CASE("stacks that files name otherwise load as experts by themselves") {
  const State state = random_state();
  const Loaded by_themselves({}, policy_of(DType::kF32), state);
  Stacks stacks = stacks_of(false, false);
  stacks[0].in_file = "mlp.input_linear.weight";
  stacks[1].in_file = "mlp.output_linear.weight";
  State named = state;
  for (const auto& stack : stacks)
    named["model.layers.0." + stack.in_file] = take_stack(named, stack, ".weight");
  const Loaded loaded(stacks, policy_of(DType::kF32), named);
  check_equal(loaded, by_themselves);
  CHECK((loaded.digests == by_themselves.digests));
}

TEST_CASE("where files may be either way, a tensor's extents say which it is") {
  const State state = random_state();
  const Loaded by_themselves({}, policy_of(DType::kF32), state);
  Stacks either = stacks_of(false, true);
  either.front().in_features = kHidden;
  either.back().in_features = kWidth;
  for (const bool transposed : {false, true})
    check_equal(Loaded(either, policy_of(DType::kF32), stacked(state, stacks_of(false, transposed))),
                by_themselves);
}

TEST_CASE("each process loads its part of stacked experts, and all their digests add up to the whole's") {
  const State state = random_state();
  const Stacks stacks = stacks_of(true, true);
  const Loaded whole(stacks, policy_of(DType::kF32), stacked(state, stacks));
  std::vector<std::string> texts;
  for (int rank = 0; rank < 3; ++rank) {
    const Loaded part(stacks, policy_of(DType::kF32), stacked(state, stacks), {rank, 3});
    check_equal(part, Loaded({}, policy_of(DType::kF32), state, {rank, 3}));
    texts.push_back(digests_text(part.digests));
  }
  CHECK((combine_digests(whole.digests, texts, 3) == whole.digests));
}

TEST_CASE("a tensor of an expert's own goes before its part of a stack") {
  State state = random_state();
  const Stacks stacks = stacks_of(false, false);
  const State both = stacked(state, stacks);
  state[of_expert(1, "up_proj") + ".weight"].fill_(0.5);
  State file = both;
  file[of_expert(1, "up_proj") + ".weight"] = state[of_expert(1, "up_proj") + ".weight"];
  check_equal(Loaded(stacks, policy_of(DType::kF32), file), Loaded({}, policy_of(DType::kF32), state));
}

TEST_CASE("a stack in mxfp4 has the form that transformers writes of it, and each expert's place there") {
  State state = random_state();
  const Stacks stacks = stacks_of(true, true);
  for (const auto& stack : stacks) {
    const at::Tensor dense = take_stack(state, stack, ".weight");
    take_stack(state, stack, ".bias");
    const std::int64_t rows = dense.size(1), blocks = dense.size(2) / 32;
    state[kBlock + stack.tensor + "_blocks"] = at::zeros({kExperts, rows, blocks, 16}, at::kByte);
    state[kBlock + stack.tensor + "_scales"] = at::zeros({kExperts, rows, blocks}, at::kByte);
  }
  const TemporaryFolder folder;
  io::Checkpoint checkpoint = written(folder, state);
  const io::CheckpointNames names = spec_of(stacks).checkpoint_names;
  name_expert_parts(checkpoint, names);
  const auto found = mxfp4_stacks(checkpoint, names);
  REQUIRE(found.size() == 2);
  const auto& up = found[0].name == kBlock + "gate_up_proj" ? found[0] : found[1];
  CHECK(up.name == kBlock + "gate_up_proj");
  CHECK(up.blocks == up.name + "_blocks");
  CHECK(up.scales == up.name + "_scales");
  CHECK(up.shape == std::vector<std::int64_t>{kExperts, kHidden, 2 * kWidth});
  REQUIRE(up.matrices.size() == 2 * kExperts);
  const StackedMatrix& matrix = up.matrices.at(3);  // up of the second expert, columns of gate and up in turn
  CHECK(matrix.name == of_expert(1, "up_proj") + ".weight");
  CHECK(matrix.rows == kWidth);
  CHECK(matrix.columns == kHidden);
  CHECK(matrix.first == kHidden * 2 * kWidth + 1);
  CHECK(matrix.row_step == 2);
  CHECK(matrix.element_step == 2 * kWidth);
  CHECK(checkpoint.find(matrix.name) != nullptr);
  CHECK(mxfp4_stacks(written(folder, random_state()), names).empty());
}

TEST_CASE("experts in mxfp4 are the numbers of their codes and scales, rows of gate and up in turn") {
  const Stacks stacks = stacks_of(true, true);
  State state = random_state();
  State numbers = state;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(9);
  // E2M1: a sign, two bits of exponent whose bias is 1, one of mantissa.
  const auto value = [](int code) {
    const int exponent = (code >> 1) & 3, mantissa = code & 1;
    const double magnitude = exponent == 0 ? 0.5 * mantissa : std::ldexp(1 + 0.5 * mantissa, exponent - 1);
    return (code & 8) != 0 ? -magnitude : magnitude;
  };
  std::vector<double> values;
  for (int code = 0; code < 16; ++code) values.push_back(value(code));
  const at::Tensor book = at::tensor(values, at::kDouble);
  for (const auto& stack : stacks) {
    const at::Tensor dense = take_stack(state, stack, ".weight");
    state[kBlock + stack.tensor + "_bias"] = take_stack(state, stack, ".bias");
    const std::int64_t rows = dense.size(1), blocks = dense.size(2) / 32;
    const at::Tensor codes = at::randint(16, {kExperts, rows, blocks, 32}, generator, at::kLong);
    const at::Tensor scales = at::randint(120, 134, {kExperts, rows, blocks}, generator, at::kLong);
    state[kBlock + stack.tensor + "_blocks"] =
        (codes.slice(3, 0, 32, 2) + 16 * codes.slice(3, 1, 32, 2)).to(at::kByte);
    state[kBlock + stack.tensor + "_scales"] = scales.to(at::kByte);
    const at::Tensor decoded = (book.index({codes}) * at::pow(2.0, scales.to(at::kDouble) - 127).unsqueeze(3))
                                   .flatten(2)
                                   .to(at::kFloat);
    const auto modules = static_cast<std::int64_t>(stack.modules.size());
    for (std::int64_t e = 0; e < kExperts; ++e) {
      for (std::int64_t m = 0; m < modules; ++m) {
        numbers[of_expert(e, stack.modules[static_cast<std::size_t>(m)]) + ".weight"] =
            decoded[e].slice(0, m, rows, modules).contiguous();
      }
    }
  }

  // Everything but the experts is numbers.
  const auto loaded = [&](const State& file, bool quantized, const nn::WeightShard& shard = {}) {
    auto policy = policy_of(DType::kF32);
    if (quantized) policy.quantization = precision::kMxfp4;
    nn::FrozenFactory factory(policy);
    factory.keep_plain([](const std::string& m) { return m.find(".experts.") == std::string::npos; });
    auto model = std::make_unique<nn::CausalLM>(spec_of(stacks), factory);
    const TemporaryFolder folder;
    io::Checkpoint checkpoint = written(folder, file);
    name_expert_parts(checkpoint, model->spec().checkpoint_names);
    const LoadReport report = compare_weights(*model, checkpoint);
    CHECK(report.unexpected == std::vector<std::string>{});
    require_complete(report, checkpoint);
    model->store().allocate(at::kCPU, shard);
    for (const auto& unit : model->store().units()) unit->part().zero_();
    load_weights(*model, checkpoint);
    return model;
  };
  const auto coded = loaded(state, true), plain = loaded(numbers, false);
  const nn::WeightUnit &of_coded = *coded->store().units()[1], &of_plain = *plain->store().units()[1];
  std::size_t matrices = 0;
  for (std::size_t i = 0; i < of_coded.segments().size(); ++i) {
    const nn::WeightSegment& segment = of_coded.segments()[i];
    if (segment.quantized == nullptr) continue;
    const auto numbers_of = [&](const nn::WeightUnit& unit) {
      return nn::UnitLoan{&unit, unit.part()}.matrix(i, segment.shape[0], segment.shape[1]).dense(at::kFloat);
    };
    CHECK(at::equal(numbers_of(of_coded), numbers_of(of_plain)));
    ++matrices;
  }
  CHECK(matrices == 3 * kExperts);
  const auto first = loaded(state, true, {0, 2}), second = loaded(state, true, {1, 2});
  const auto part_of = [](const nn::CausalLM& model) { return model.store().units()[1]->part(); };
  CHECK(at::equal(at::cat({part_of(*first), part_of(*second)}).slice(0, 0, of_coded.matrix_bytes()),
                  of_coded.part().slice(0, 0, of_coded.matrix_bytes())));

  State with_nan = state;
  with_nan[kBlock + "down_proj_scales"][1][2][0] = 255;
  CHECK_THAT(error_text([&] { loaded(with_nan, true); }),
             Contains("1.down_proj.weight_scales': expected numbers, got NaN among them"));
  State without_scales = state;
  without_scales.erase(kBlock + "down_proj_scales");
  CHECK_THAT(error_text([&] { loaded(without_scales, true); }), Contains("down_proj"));
  // Without the config's word for it.
  CHECK_THAT(error_text([&] { loaded(state, false); }),
             Contains("0.gate_proj.weight: expected at least 16 bits, got mxfp4"));
}

TEST_CASE("stacks of another shape are refused by name") {
  const State state = stacked(random_state(), stacks_of(true, true));
  CHECK_THAT(
      refusal(state, "gate_up_proj", at::zeros({kExperts, kHidden})),
      Contains(kBlock + "gate_up_proj': expected matrices of all experts, three dimensions, got [3, 64]"));
  CHECK_THAT(refusal(state, "gate_up_proj", at::zeros({kExperts, kHidden, 7})),
             Contains("expected rows of 2 modules, of each the same number, got [3, 64, 7]"));
  CHECK_THAT(refusal(state, "gate_up_proj_bias", at::zeros({kExperts})), Contains("expected biases"));
  CHECK_THAT(refusal(state, "down_proj_blocks", at::zeros({kExperts, 2, 2, 8}, at::kByte)),
             Contains("expected blocks of all experts, uint8 [experts, rows, blocks, 16]"));
  CHECK_THAT(refusal(state, "down_proj_blocks", at::zeros({kExperts, 2, 2, 16})),
             Contains("expected blocks"));
  CHECK_THAT(refusal(state, "down_proj_scales", at::zeros({kExperts, 2}, at::kByte)),
             Contains("expected scales"));
}
