#include "precision/policy.h"

#include <set>

#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::precision;

namespace {

config::PrecisionSettings preset(config::PrecisionPreset name) {
  config::PrecisionSettings settings;
  settings.preset = name;
  return settings;
}

}  // namespace

TEST_CASE("the bf16 preset stores and computes in bf16 and keeps all that accumulates in fp32") {
  const Policy policy = resolve(preset(config::PrecisionPreset::kBf16));
  CHECK(policy == Policy{});
  CHECK(policy.table() ==
        "  frozen base                  bf16\n"
        "  compute                      bf16\n"
        "  adapter                      fp32\n"
        "  optimizer state              fp32\n"
        "  gradients                    fp32\n"
        "  reduction                    fp32\n"
        "  loss                         fp32\n"
        "  norm and softmax statistics  fp32\n");
}

TEST_CASE("the fp32 preset is fp32 throughout") {
  for (const auto& [what, dtype] : resolve(preset(config::PrecisionPreset::kFp32)).rows()) {
    CAPTURE(what);
    CHECK(dtype == DType::kF32);
  }
}

TEST_CASE("an override replaces what the preset says, and nothing else") {
  config::PrecisionSettings settings = preset(config::PrecisionPreset::kBf16);
  settings.compute = DType::kF32;
  Policy expected;
  expected.compute = DType::kF32;
  CHECK(resolve(settings) == expected);

  settings = preset(config::PrecisionPreset::kFp32);
  settings.base_storage = DType::kBF16;
  settings.adapter = DType::kBF16;
  settings.reduce = DType::kBF16;
  const Policy policy = resolve(settings);
  CHECK(policy.base_storage == DType::kBF16);
  CHECK(policy.compute == DType::kF32);
  CHECK(policy.adapter == DType::kBF16);
  CHECK(policy.reduce == DType::kBF16);
}

TEST_CASE("every row is part of the fingerprint") {
  const Policy base;
  CHECK(base.fingerprint() == Policy{}.fingerprint());
  CHECK(base.fingerprint().size() == 64);
  std::set<std::string> fingerprints{base.fingerprint()};
  DType Policy::*const fields[] = {
      &Policy::base_storage, &Policy::compute, &Policy::adapter, &Policy::optimizer_state,
      &Policy::gradient,     &Policy::reduce,  &Policy::loss,    &Policy::statistics};
  CHECK(std::size(fields) == base.rows().size());
  for (DType Policy::*const field : fields) {
    Policy other;
    other.*field = DType::kF16;
    fingerprints.insert(other.fingerprint());
  }
  CHECK(fingerprints.size() == std::size(fields) + 1);
}
