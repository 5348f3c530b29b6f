#include "precision/policy.h"

#include <set>

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::precision;
using namespace lorikeet::test;
using Catch::Contains;
using config::Matmul;
using config::PrecisionPreset;

namespace {

// The devices of a machine with one card of this compute capability.
std::vector<device::CudaDevice> card(int major, int minor) { return {{"Some Card", 1U << 30, major, minor}}; }
const device::Device kCpu;
const device::Device kCuda{device::Device::Kind::kCuda, 0};

}  // namespace

TEST_CASE("the bf16 preset stores and computes in bf16 and keeps all that accumulates in fp32") {
  const Policy policy = resolve({.preset = PrecisionPreset::kBf16});
  CHECK(policy == Policy{});
  CHECK(policy.table() ==
        "  frozen base                  bf16\n"
        "  compute                      bf16\n"
        "  adapter                      fp32\n"
        "  optimizer state              fp32\n"
        "  gradients                    fp32\n"
        "  reduction                    fp32\n"
        "  loss                         fp32\n"
        "  norm and softmax statistics  fp32\n"
        "  products of fp32             fp32\n"
        "  sums of 16-bit products      fp32\n"
        "  gradient scaling             none\n");
}

TEST_CASE("the fp32 preset is fp32 throughout") {
  for (const auto& [what, how] : resolve({.preset = PrecisionPreset::kFp32}).rows()) {
    CAPTURE(what);
    CHECK(how == (what == "gradient scaling" ? "none" : "fp32"));
  }
}

TEST_CASE("exact computations leave a base of one 16-bit dtype as it is, and widen all others") {
  const auto storage = [](const std::set<DType>& stored) {
    const Policy policy = exact_policy(stored);
    CHECK(policy.compute == DType::kF32);
    return policy.base_storage;
  };
  CHECK(storage({DType::kBF16}) == DType::kBF16);
  CHECK(storage({DType::kF16}) == DType::kF16);
  for (const std::set<DType>& others :
       {std::set{DType::kF32}, {DType::kBF16, DType::kF16}, {DType::kBF16, DType::kU8}, {}})
    CHECK(storage(others) == DType::kF32);
}

TEST_CASE("the tf32 preset differs from fp32 in its products alone") {
  Policy expected = resolve({.preset = PrecisionPreset::kFp32});
  expected.matmul = Matmul::kTf32;
  CHECK(resolve({.preset = PrecisionPreset::kTf32}) == expected);
  CHECK(resolve({.preset = PrecisionPreset::kFp32, .matmul = Matmul::kTf32}) == expected);
}

TEST_CASE("the fp16 preset is bf16's with fp16 and scaled gradients") {
  Policy expected;
  expected.base_storage = expected.compute = DType::kF16;
  expected.gradient_scaling = true;
  CHECK(resolve({.preset = PrecisionPreset::kFp16}) == expected);
}

TEST_CASE("an override replaces what the preset says, and nothing else") {
  Policy expected;
  expected.compute = DType::kF32;
  CHECK(resolve({.compute = DType::kF32}) == expected);

  const Policy policy = resolve({.preset = PrecisionPreset::kFp32,
                                 .base_storage = config::BaseStorage::kBF16,
                                 .adapter = DType::kBF16,
                                 .reduce = DType::kBF16});
  CHECK(policy.base_storage == DType::kBF16);
  CHECK(policy.compute == DType::kF32);
  CHECK(policy.adapter == DType::kBF16);
  CHECK(policy.gradient == DType::kBF16);
  CHECK(policy.optimizer_state == DType::kBF16);
  CHECK(policy.reduce == DType::kBF16);
  CHECK(policy.loss == DType::kF32);
}

TEST_CASE("nf4 storage is for linear weights, and the rest of the base stays as the preset says") {
  Policy expected;
  expected.quantization.emplace();
  const Policy policy = resolve({.base_storage = config::BaseStorage::kNF4});
  CHECK(policy == expected);
  CHECK_THAT(policy.table(),
             Contains("frozen linear weights") && Contains("nf4 in blocks of 64, scales in blocks of 256"));
  CHECK(policy.fingerprint() != Policy{}.fingerprint());
  CHECK(resolve({.preset = PrecisionPreset::kFp32, .base_storage = config::BaseStorage::kNF4}).base_storage ==
        DType::kF32);
  CHECK(describe(FourBits{.book = CodeBook::kFP4, .nested_block = 0}) ==
        "fp4 in blocks of 64, scales in fp32");
}

TEST_CASE("fp8 storage is for linear weights too, with a scale for each row") {
  Policy expected;
  expected.quantization = Float8{.block_rows = 1, .block_cols = 0};
  const Policy policy = resolve({.base_storage = config::BaseStorage::kF8});
  CHECK(policy == expected);
  CHECK_THAT(policy.table(),
             Contains("frozen linear weights") && Contains("fp8 (e4m3), a scale for each row"));
  CHECK(policy.fingerprint() != resolve({.base_storage = config::BaseStorage::kNF4}).fingerprint());
  CHECK(describe(Float8{.block_rows = 0, .block_cols = 0}) == "fp8 (e4m3), a scale for each matrix");
  CHECK(describe(Float8{.block_rows = 128, .block_cols = 128}) ==
        "fp8 (e4m3), a scale for each block of 128 x 128");
}

TEST_CASE("products in fp8 are for weights with a scale for each row or matrix, bf16 and Ada") {
  const Policy policy = resolve({.base_storage = config::BaseStorage::kF8, .matmul = Matmul::kFp8});
  CHECK_THAT(policy.table(), Contains("fp8, activations with a scale for each row"));
  CHECK(policy.fingerprint() != resolve({.base_storage = config::BaseStorage::kF8}).fingerprint());
  CHECK_NOTHROW(require_products_fit(policy));
  Policy other = policy;
  other.quantization = Float8{.block_rows = 0, .block_cols = 0};
  CHECK_NOTHROW(require_products_fit(other));
  other.quantization = Float8{.block_rows = 128, .block_cols = 128};
  CHECK_THAT(error_text([&] { require_products_fit(other); }), Contains("block of 128 x 128"));
  other.quantization.reset();
  CHECK_THAT(error_text([&] { require_products_fit(other); }), Contains("stored in bf16"));
  CHECK_THAT(error_text([] { resolve({.preset = PrecisionPreset::kFp32, .matmul = Matmul::kFp8}); }),
             Contains("precision.compute is fp32"));
  CHECK_NOTHROW(require_supported(policy, kCuda, card(8, 9)));
  CHECK_NOTHROW(require_supported(policy, kCpu, {}));
  CHECK_THAT(error_text([&] { require_supported(policy, kCuda, card(8, 6)); }),
             Contains("8.6") && Contains("no fp8 arithmetic") && Contains("leave precision.matmul out"));
}

TEST_CASE("gradients are scaled wherever fp16 is computed in, and only there") {
  CHECK(resolve({.compute = DType::kF16}).gradient_scaling);
  CHECK_FALSE(resolve({.preset = PrecisionPreset::kFp16, .compute = DType::kF32}).gradient_scaling);
}

TEST_CASE("TF32 for products that are not fp32 is a contradiction") {
  CHECK_THAT(error_text([] { resolve({.matmul = Matmul::kTf32}); }),
             Contains("precision.compute is bf16") && Contains("leave precision.matmul out"));
}

TEST_CASE("a way to multiply 16-bit matrices is a row where it is set, and nothing else changes") {
  for (const auto& [matmul, name] : {std::pair(Matmul::kNative, "native"), {Matmul::kWidened, "widened"}}) {
    const Policy policy = resolve({.matmul = matmul});
    Policy other = policy;
    other.matmul = Matmul::kFp32;
    CHECK(other == Policy());
    CHECK_THAT(policy.table(), Contains("products of 16 bits") && Contains(name));
    CHECK(policy.fingerprint() != Policy().fingerprint());
    CHECK(resolve({.preset = PrecisionPreset::kFp16, .matmul = matmul}).matmul == matmul);
  }
  CHECK(resolve({.matmul = Matmul::kNative}).fingerprint() !=
        resolve({.matmul = Matmul::kWidened}).fingerprint());
  CHECK_THAT(Policy().table(), !Contains("products of 16 bits"));
}

TEST_CASE("a way to multiply 16-bit matrices is refused where there are none, and widening on a GPU") {
  CHECK_THAT(error_text([] { resolve({.preset = PrecisionPreset::kFp32, .matmul = Matmul::kNative}); }),
             Contains("precision.matmul=native") && Contains("precision.compute is fp32"));
  CHECK_THAT(error_text([] { resolve({.preset = PrecisionPreset::kTf32, .matmul = Matmul::kWidened}); }),
             Contains("precision.matmul=widened") && Contains("leave precision.matmul out"));
  const device::Device gpu{device::Device::Kind::kCuda, 0};
  const std::vector<device::CudaDevice> cards{{.name = "card", .capability_major = 9}};
  CHECK_THAT(error_text([&] { require_supported(resolve({.matmul = Matmul::kWidened}), gpu, cards); }),
             Contains("is for CPUs") && Contains("cuda:0"));
  CHECK_NOTHROW(require_supported(resolve({.matmul = Matmul::kNative}), gpu, cards));
  CHECK_NOTHROW(require_supported(resolve({.matmul = Matmul::kWidened}), device::Device{}, {}));
}

TEST_CASE("every row is part of the fingerprint") {
  const Policy base;
  CHECK(base.fingerprint() == Policy{}.fingerprint());
  CHECK(base.fingerprint().size() == 64);
  std::set<std::string> fingerprints{base.fingerprint()};
  DType Policy::*const fields[] = {
      &Policy::base_storage, &Policy::compute, &Policy::adapter, &Policy::optimizer_state,
      &Policy::gradient,     &Policy::reduce,  &Policy::loss,    &Policy::statistics};
  for (DType Policy::*const field : fields) {
    Policy other;
    other.*field = DType::kF16;
    fingerprints.insert(other.fingerprint());
  }
  Policy products, scaled;
  products.matmul = Matmul::kTf32;
  scaled.gradient_scaling = true;
  fingerprints.insert({products.fingerprint(), scaled.fingerprint()});
  // One row has no field: what 16-bit products are summed in is the same in every policy.
  CHECK(fingerprints.size() == base.rows().size());
}

TEST_CASE("a card without fast arithmetic of the policy's kind is refused with the presets it is good for") {
  struct Case {
    PrecisionPreset preset;
    int major, minor;
    const char* missing;
    const char* choices;
  };
  const Case c = GENERATE(
      values<Case>({{PrecisionPreset::kBf16, 7, 5, "no fast bf16", "choose precision.preset=fp16 (as fast"},
                    {PrecisionPreset::kTf32, 7, 5, "no fast TF32", "precision.preset=fp32 (exact"}}));
  const Policy policy = resolve({.preset = c.preset});
  CHECK_THAT(error_text([&] { require_supported(policy, kCuda, card(c.major, c.minor)); }),
             Contains(c.missing) && Contains(c.choices) &&
                 Contains("compute capability " + std::to_string(c.major) + "." + std::to_string(c.minor)));
}

TEST_CASE("a card that nothing is built for is refused, whatever the precision") {
  for (const auto preset : {PrecisionPreset::kBf16, PrecisionPreset::kFp16, PrecisionPreset::kFp32}) {
    CHECK_THAT(error_text([&] { require_supported(resolve({.preset = preset}), kCuda, card(7, 0)); },
                          ErrorKind::kEnvironment),
               Contains("[device]") && Contains("7.0") && Contains("device=cpu"));
  }
}

TEST_CASE("cards take what their generation has, and CPUs everything but TF32") {
  const auto fine = [](PrecisionPreset preset, const device::Device& device, int major) {
    CHECK_NOTHROW(require_supported(resolve({.preset = preset}), device, card(major, 0)));
  };
  for (const auto preset : {PrecisionPreset::kBf16, PrecisionPreset::kTf32}) fine(preset, kCuda, 8);
  for (const auto preset : {PrecisionPreset::kFp16, PrecisionPreset::kFp32})
    CHECK_NOTHROW(require_supported(resolve({.preset = preset}), kCuda, card(7, 5)));
  for (const auto preset : {PrecisionPreset::kBf16, PrecisionPreset::kFp32, PrecisionPreset::kFp16}) {
    fine(preset, kCpu, 0);
  }
  CHECK_THAT(error_text([] { require_supported(resolve({.preset = PrecisionPreset::kTf32}), kCpu, {}); }),
             Contains("a CPU has no TF32") && Contains("fp32 (exact)"));
}
