#include "comm/handshake.h"

#include "base/hash.h"
#include "base/hmac.h"
#include "base/json.h"

namespace lorikeet::comm {
namespace {

constexpr std::size_t kNonceDigits = 64;
constexpr std::size_t kLongestVersion = 64;
constexpr std::size_t kLongestText = 2048;
constexpr int kMostNodes = 4096;
constexpr int kMostProcesses = 1024;
constexpr int kDay = 24 * 3600;

// Reads one line by `read`, which throws for what it doesn't find.
template <typename Read>
auto from_line(std::string_view line, Read read) -> std::optional<decltype(read(JsonView(Json(), "")))> {
  try {
    const Json json = Json::parse(
        line, "launch", {.max_depth = 3, .max_bytes = kLongestJoinLine, .max_values = kMostNodes + 32});
    return read(JsonView(json, "launch"));
  } catch (const Error&) {
    return std::nullopt;
  }
}

int number(const JsonView& view, std::string_view key, int least, int most) {
  const std::int64_t value = view.at(key).as_int();
  if (value < least || value > most) view.at(key).fail("another number");
  return static_cast<int>(value);
}

std::string text(const JsonView& view, std::string_view key, std::size_t longest) {
  const std::string& value = view.at(key).as_string();
  if (value.size() > longest) view.at(key).fail("a shorter text");
  return value;
}

// Hexadecimal digits of a length that is known; or nothing, where that is allowed.
std::string digits(const JsonView& view, std::string_view key, bool may_be_empty = false) {
  std::string value = text(view, key, kNonceDigits);
  const bool complete =
      value.size() == kNonceDigits && value.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!complete && !(may_be_empty && value.empty())) view.at(key).fail("64 hexadecimal digits");
  return value;
}

std::string proof(const std::string& secret, std::string_view role, const std::string& host_nonce,
                  const Hello& hello) {
  Sha256 message;
  for (const std::string_view field :
       {std::string_view("lorikeet rendezvous 1"), role, std::string_view(host_nonce),
        std::string_view(hello.nonce), std::string_view(hello.instance), std::string_view(hello.version)}) {
    message.field(field);
  }
  for (const int value : {hello.nodes, hello.node, hello.processes}) message.field(std::to_string(value));
  return hmac_sha256_hex(secret, message.hex());
}

}  // namespace

std::string encode(const Challenge& challenge) {
  return Json(Json::Object{{"lorikeet", challenge.version},
                           {"nonce", challenge.nonce},
                           {"secret", challenge.has_secret}})
      .dump();
}

std::string encode(const Hello& hello) {
  return Json(Json::Object{{"nonce", hello.nonce},
                           {"instance", hello.instance},
                           {"version", hello.version},
                           {"nodes", hello.nodes},
                           {"node", hello.node},
                           {"processes", hello.processes},
                           {"proof", hello.proof}})
      .dump();
}

std::string encode(const Welcome& welcome) {
  return Json(Json::Object{{"proof", welcome.proof}, {"wait_seconds", welcome.wait_seconds}}).dump();
}

std::string encode(const Start& start) {
  Json::Array processes;
  for (const int count : start.processes) processes.emplace_back(count);
  return Json(Json::Object{{"store_port", start.store_port}, {"processes", std::move(processes)}}).dump();
}

std::string encode(const Refusal& refusal) {
  return Json(Json::Object{{"error", refusal.text.substr(0, kLongestText)},
                           {"code", static_cast<int>(refusal.kind)}})
      .dump();
}

std::optional<Challenge> read_challenge(std::string_view line) {
  return from_line(line, [](const JsonView& view) {
    return Challenge{.version = text(view, "lorikeet", kLongestVersion),
                     .nonce = digits(view, "nonce"),
                     .has_secret = view.at("secret").as_bool()};
  });
}

std::optional<Hello> read_hello(std::string_view line) {
  return from_line(line, [](const JsonView& view) {
    return Hello{.nonce = digits(view, "nonce"),
                 .instance = digits(view, "instance"),
                 .version = text(view, "version", kLongestVersion),
                 .nodes = number(view, "nodes", 1, kMostNodes),
                 .node = number(view, "node", 0, kMostNodes),
                 .processes = number(view, "processes", 1, kMostProcesses),
                 .proof = digits(view, "proof", true)};
  });
}

std::optional<Welcome> read_welcome(std::string_view line) {
  return from_line(line, [](const JsonView& view) {
    return Welcome{.proof = digits(view, "proof", true),
                   .wait_seconds = number(view, "wait_seconds", 0, kDay)};
  });
}

std::optional<Start> read_start(std::string_view line) {
  return from_line(line, [](const JsonView& view) {
    Start start{.store_port = number(view, "store_port", 1, 65535)};
    for (const JsonView& item : view.at("processes").items()) {
      const std::int64_t count = item.as_int();
      if (count < 1 || count > kMostProcesses) item.fail("another number");
      start.processes.push_back(static_cast<int>(count));
    }
    return start;
  });
}

std::optional<Refusal> read_refusal(std::string_view line) {
  return from_line(line, [](const JsonView& view) {
    Refusal refusal{.text = text(view, "error", kLongestText)};
    const std::int64_t code = view.at("code").as_int();
    for (const ErrorKind kind : {ErrorKind::kRunFailed, ErrorKind::kEnvironment, ErrorKind::kInterrupted}) {
      if (code == static_cast<int>(kind)) refusal.kind = kind;
    }
    return refusal;
  });
}

std::string joiner_proof(const std::string& secret, const std::string& host_nonce, const Hello& hello) {
  return proof(secret, "joiner", host_nonce, hello);
}

std::string host_proof(const std::string& secret, const std::string& host_nonce, const Hello& hello) {
  return proof(secret, "host", host_nonce, hello);
}

}  // namespace lorikeet::comm
