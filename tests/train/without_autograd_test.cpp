// Passes skip libtorch's autograd: calls of operators take the host half as long so.
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;

namespace {

bool autograd_is_off() {
  return c10::impl::tls_is_dispatch_keyset_excluded(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
}

// Lends units as they are, and counts in how many of its loans autograd was off.
class Watch : public nn::UnitLender {
 public:
  void expect(const std::vector<const nn::WeightUnit*>& /*order*/) override {}
  nn::UnitLoan borrow(const nn::WeightUnit& unit) override {
    ++loans;
    off += autograd_is_off() ? 1 : 0;
    return {&unit, unit.part()};
  }

  int loans = 0, off = 0;
};

}  // namespace

TEST_CASE("training, evaluation and generation skip autograd, and leave it on behind them") {
  ToyLora toy;
  const nn::Batch batch = labelled(toy_prompts());
  const auto check = [&](auto&& pass) {
    Watch watch;
    toy.model.store().lend_by(&watch);
    pass();
    toy.model.store().lend_by(nullptr);
    CHECK(watch.loans > 3);
    CHECK(watch.off == watch.loans);
    CHECK_FALSE(autograd_is_off());
  };
  check([&] { toy.gradients({batch}); });
  check([&] { toy.model.token_nll({.batch = batch}); });
  check([&] { toy.model.logits({.batch = batch}); });
}
