#include "probe/request.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;
using test::error_text;

TEST_CASE("a request reads back as it was written") {
  const ProbeRequest request{.kind = ProbeKind::kPeerCopy,
                             .device = 3,
                             .compute = DType::kF16,
                             .matmul = config::Matmul::kTf32,
                             .peers = {0, 2},
                             .rank = 1,
                             .size = 4,
                             .port = 4000,
                             .listen_fd = 7,
                             .limit_seconds = 2.5,
                             .folder = "a \"b\"\n",
                             .op = "rotary"};
  const ProbeRequest again = ProbeRequest::parse(request.text());
  CHECK(again.text() == request.text());
  CHECK(again.kind == ProbeKind::kPeerCopy);
  CHECK(again.peers == std::vector<int>{0, 2});
  CHECK(again.compute == DType::kF16);
  CHECK(again.folder == "a \"b\"\n");
  CHECK(again.op == "rotary");
}

TEST_CASE("what is no request is an error") {
  const std::string good = ProbeRequest{}.text();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return error_text([&] { ProbeRequest::parse(text); });
  };
  CHECK(with("matrix product", "matrix product") == "no error");
  CHECK_THAT(with("matrix product", "dance"), Contains("probe: probe") && Contains("a probe's name"));
  CHECK_THAT(with("\"BF16\"", "\"I64\""), Contains("a floating dtype"));
  CHECK_THAT(with("\"rank\":0", "\"rank\":-1"), Contains("a small number"));
  CHECK_THAT(error_text([] { ProbeRequest::parse("matmul"); }), Contains("probe"));
}

TEST_CASE("an answer reads back as it was written") {
  const ProbeAnswer answer{.figures = {{"gb_per_second", 12.5}, {"other", 3}}, .wrong = {"a byte"}};
  const ProbeAnswer again = ProbeAnswer::parse(answer.text());
  CHECK(again.figures == answer.figures);
  CHECK(again.wrong == answer.wrong);
  CHECK(again.figure("gb_per_second") == 12.5);
  CHECK(again.figure("none") == 0);
}

TEST_CASE("an answer is found among what libraries print") {
  const std::string answer = ProbeAnswer{.figures = {{"a", 2}}}.text();
  CHECK(ProbeAnswer::parse("NCCL INFO {}\n" + answer + "\nbye\n").figure("a") == 2);
  CHECK_THAT(error_text([] { ProbeAnswer::parse("NCCL INFO {}\n"); }), Contains("probe's answer"));
}
