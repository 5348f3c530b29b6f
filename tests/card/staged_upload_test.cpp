#include "models/staged_upload.h"

#include <ATen/ATen.h>

#include "card/report.h"
#include "support/catch.h"

using namespace lorikeet;

TEST_CASE(
    "pieces that go to a card through two buffers arrive as they are, waited for when a buffer is reused") {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  std::vector<at::Tensor> sources;
  for (const std::int64_t length : {1000, 70000, 1, 33, 5000})
    sources.push_back(at::randn({length}, generator));
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    std::vector<at::Tensor> targets;
    for (const auto& source : sources)
      targets.push_back(at::empty(source.sizes(), at::TensorOptions(dtype).device("cuda:1")));
    card::reset_report();
    models::StagedUpload upload;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      at::Tensor mapped = sources[i].clone();
      CHECK(at::equal(upload.copy(targets[i], mapped), sources[i].to(dtype)));
      mapped.fill_(-1);  // the file's pages are given back
    }
    CHECK(card::report().waits.at("synchronizeEvent") == 3);  // for the first, second and third piece
    upload.finish();
    CHECK(card::report().waits.at("synchronizeEvent") == 5);
    CHECK(card::report().waits.size() == 1);
    CHECK(card::report().pinned_uploads == 5);
    CHECK(card::report().hazards.empty());
    for (std::size_t i = 0; i < sources.size(); ++i) CHECK(at::equal(targets[i].cpu(), sources[i].to(dtype)));
  }
}

TEST_CASE("a piece larger than a buffer gets one of its own, and a CPU none") {
  const at::Tensor large = at::arange(3 << 20, at::kFloat);
  const at::Tensor on_card = at::empty(large.sizes(), at::TensorOptions(at::kFloat).device("cuda:0"));
  const at::Tensor on_host = at::empty(large.sizes(), at::kHalf);
  card::reset_report();
  models::StagedUpload upload;
  upload.copy(on_card, large);
  CHECK(card::report().uploads == 1);
  CHECK(upload.copy(on_host, large).is_same(on_host));
  upload.finish();
  CHECK(card::report().uploads == 1);
  CHECK(at::equal(on_card.cpu(), large));
  CHECK(at::equal(on_host, large.to(at::kHalf)));
}
