#include "probe/request.h"

#include <array>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"

namespace lorikeet::probe {
namespace {

constexpr std::array kKinds = {ProbeKind::kMatmul,    ProbeKind::kTransfer, ProbeKind::kPeerCopy,
                               ProbeKind::kAllReduce, ProbeKind::kWrite,    ProbeKind::kOperator};

int small_int(const JsonView& json, std::int64_t least) {
  constexpr std::int64_t kMost = 1 << 20;
  if (json.as_int() < least || json.as_int() > kMost) json.fail("a small number");
  return static_cast<int>(json.as_int());
}

}  // namespace

const char* name_of(ProbeKind kind) {
  switch (kind) {
    case ProbeKind::kMatmul: return "matrix product";
    case ProbeKind::kTransfer: return "host copies";
    case ProbeKind::kPeerCopy: return "peer copy";
    case ProbeKind::kAllReduce: return "all-reduce";
    case ProbeKind::kWrite: return "disk write";
    case ProbeKind::kOperator: return "operator";
  }
  return "";
}

std::string ProbeRequest::text() const {
  Json json;
  json.set("probe", name_of(kind)).set("device", device);
  json.set("peers", Json::Array(peers.begin(), peers.end()));
  json.set("compute", dtype_safetensors_name(compute)).set("tf32", matmul == config::Matmul::kTf32);
  json.set("bytes", bytes).set("rank", rank).set("size", size).set("port", port).set("listen_fd", listen_fd);
  json.set("limit_seconds", limit_seconds).set("folder", folder).set("op", op);
  return json.dump();
}

ProbeRequest ProbeRequest::parse(const std::string& text) {
  const Json json = Json::parse(text, "probe");
  const JsonView view(json, "probe");
  ProbeRequest request;
  bool known = false;
  for (const ProbeKind kind : kKinds) {
    if (view.at("probe").as_string() != name_of(kind)) continue;
    request.kind = kind;
    known = true;
  }
  if (!known) view.at("probe").fail("a probe's name");
  request.device = small_int(view.at("device"), -1);
  for (const JsonView& peer : view.at("peers").items()) request.peers.push_back(small_int(peer, 0));
  const auto compute = dtype_from_safetensors(view.at("compute").as_string());
  if (!compute || !is_floating(*compute)) view.at("compute").fail("a floating dtype");
  request.compute = *compute;
  request.matmul = view.at("tf32").as_bool() ? config::Matmul::kTf32 : config::Matmul::kFp32;
  request.bytes = view.at("bytes").as_int();
  if (request.bytes < 4) view.at("bytes").fail("at least 4");
  request.rank = small_int(view.at("rank"), 0);
  request.size = small_int(view.at("size"), 1);
  request.port = small_int(view.at("port"), 0);
  request.listen_fd = small_int(view.at("listen_fd"), -1);
  request.limit_seconds = view.at("limit_seconds").as_number();
  request.folder = view.at("folder").as_string();
  request.op = view.at("op").as_string();
  return request;
}

std::string ProbeAnswer::text() const {
  return Json()
      .set("figures", Json::Object(figures.begin(), figures.end()))
      .set("wrong", Json::Array(wrong.begin(), wrong.end()))
      .dump();
}

ProbeAnswer ProbeAnswer::parse(const std::string& output) {
  std::string answer_line;
  for (const std::string& line : split(output, '\n')) {
    if (line.starts_with("{\"figures\"")) answer_line = line;
  }
  const Json json = Json::parse(answer_line, "probe's answer");
  const JsonView view(json, "probe's answer");
  ProbeAnswer answer;
  for (const auto& [name, value] : view.at("figures").members())
    answer.figures.emplace_back(name, value.as_number());
  for (const JsonView& sentence : view.at("wrong").items()) answer.wrong.push_back(sentence.as_string());
  return answer;
}

double ProbeAnswer::figure(const std::string& name) const {
  for (const auto& [known, value] : figures) {
    if (known == name) return value;
  }
  return 0;
}

}  // namespace lorikeet::probe
