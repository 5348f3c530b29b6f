#include "hub/http.h"

#include <curl/curl.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/strings.h"
#include "base/version.h"

namespace lorikeet::hub {
namespace {

constexpr int kMostRedirects = 10;
constexpr long kConnectSeconds = 10;
constexpr std::size_t kMostHeaders = 200;

void start_curl() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
      throw Error("[hub] libcurl can't start", ErrorKind::kEnvironment);
  });
}

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return "";
  std::string result = ascii_lower(text);
  curl_free(text);
  return result;
}

// "https://host:443", "" for what is no URL.
std::string origin_of(const std::string& text) {
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  if (!url || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return "";
  return part_of(url.get(), CURLUPART_SCHEME) + "://" + part_of(url.get(), CURLUPART_HOST) + ":" +
         part_of(url.get(), CURLUPART_PORT);
}

// The bundle of certificates that a company's proxy needs; libcurl itself reads none of these.
const char* certificates() {
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return nullptr;
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

std::string HttpAnswer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

std::string url_encode(std::string_view text, bool keep_slash) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || (keep_slash && c == '/');
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

// What curl's callbacks share during one request.
struct HttpClient::Transfer {
  CURL* curl;
  HttpSink& sink;
  HttpResult result;
  bool begun = false;

  bool wants_body() {
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &result.answer.status);
    return result.answer.status == 200 || result.answer.status == 206;
  }

  bool begin() {
    if (begun) return true;
    begun = true;
    result.stopped = !sink.begin(result.answer);
    return !result.stopped;
  }

  static std::size_t on_header(const char* data, std::size_t, std::size_t size, void* self) {
    auto& headers = static_cast<Transfer*>(self)->result.answer.headers;
    const std::string_view line(data, size);
    if (line.starts_with("HTTP/")) headers.clear();  // a proxy's answer, or an interim one, came before
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && headers.size() < kMostHeaders)
      headers[ascii_lower(line.substr(0, colon))] = trim(line.substr(colon + 1));
    return size;
  }

  static std::size_t on_body(const char* data, std::size_t, std::size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (!transfer.wants_body()) return size;
    if (transfer.begin() && transfer.sink.write({data, size})) return size;
    transfer.result.stopped = true;
    return size == 0 ? 1 : 0;
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (!transfer.sink.should_stop()) return 0;
    transfer.result.stopped = true;
    return 1;
  }
};

HttpClient::HttpClient(const Environment& environment) : environment_(environment), curl_(nullptr) {
  start_curl();
  curl_ = curl_easy_init();
  if (curl_ == nullptr) throw Error("[hub] libcurl can't start", ErrorKind::kEnvironment);
}

HttpClient::~HttpClient() { curl_easy_cleanup(curl_); }

HttpResult HttpClient::get(const std::string& url, std::uint64_t offset, HttpSink& sink) {
  std::string at = url;
  for (int i = 0; i <= kMostRedirects; ++i) {
    std::string redirect;
    HttpResult result = get_once(at, offset, sink, &redirect);
    if (redirect.empty()) return result;
    if (at.starts_with("https:") && !ascii_lower(redirect).starts_with("https:")) {
      result.failure = "a redirect from https to http is refused";
      return result;
    }
    at = redirect;
  }
  return {.answer = {},
          .failure = "more than " + std::to_string(kMostRedirects) + " redirects",
          .stopped = false};
}

HttpResult HttpClient::get_once(const std::string& url, std::uint64_t offset, HttpSink& sink,
                                std::string* redirect) {
  CURL* curl = curl_;
  curl_easy_reset(curl);  // keeps the connection
  Transfer transfer{.curl = curl, .sink = sink, .result = {}};
  std::array<char, CURL_ERROR_SIZE> reason{};
  const std::string range = std::to_string(offset) + "-";
  const std::string agent = std::string("lorikeet/") + std::string(kVersion);
  curl_slist* headers = nullptr;
  if (environment_.token && origin_of(url) == origin_of(environment_.endpoint))
    headers = curl_slist_append(headers, ("Authorization: Bearer " + *environment_.token).c_str());

  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_HEADEROPT, CURLHEADER_SEPARATE);  // a proxy doesn't see the token
  curl_easy_setopt(curl, CURLOPT_USERAGENT, agent.c_str());
  if (offset > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  if (const char* bundle = certificates()) curl_easy_setopt(curl, CURLOPT_CAINFO, bundle);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, environment_.stall_seconds);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason.data());
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  const CURLcode code = curl_easy_perform(curl);
  curl_slist_free_all(headers);

  const bool has_body = transfer.wants_body();
  if (code != CURLE_OK && !transfer.result.stopped)
    transfer.result.failure = reason[0] != '\0' ? reason.data() : curl_easy_strerror(code);
  if (code == CURLE_OK && has_body) transfer.begin();  // an empty body
  const char* location = nullptr;
  curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &location);
  if (code == CURLE_OK && is_redirect(transfer.result.answer.status) && location != nullptr)
    *redirect = location;
  return transfer.result;
}

}  // namespace lorikeet::hub
