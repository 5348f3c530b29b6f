#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hub/environment.h"

namespace lorikeet::hub {

/// Status and headers of an answer, names in lower case.
struct HttpAnswer {
  long status = 0;
  std::map<std::string, std::string> headers;

  /// "" for a header that isn't there.
  std::string header(const std::string& name) const;
};

/// Where the body of a 200 or 206 goes. Bodies of other answers are passed over.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  /// Before the first byte. False ends the transfer.
  virtual bool begin(const HttpAnswer& answer) = 0;
  /// False ends the transfer.
  virtual bool write(std::string_view bytes) = 0;
  /// Asked now and then: true ends the transfer.
  virtual bool should_stop() = 0;
};

struct HttpResult {
  HttpAnswer answer;
  std::string failure;   ///< of the connection, "" where the transfer ended as it should
  bool stopped = false;  ///< the sink ended it
};

/// GET over one kept connection; one object a thread. Certificates are checked; SSL_CERT_FILE, the variables
/// of proxies are obeyed as curl does.
///
/// Redirects are followed, at most 10, never from https to http. The token goes to the endpoint's own scheme,
/// host and port and nowhere else.
class HttpClient {
 public:
  explicit HttpClient(const Environment& environment);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// The resource from byte `offset` on (a Range header, where it isn't 0).
  HttpResult get(const std::string& url, std::uint64_t offset, HttpSink& sink);

 private:
  struct Transfer;
  HttpResult get_once(const std::string& url, std::uint64_t offset, HttpSink& sink, std::string* redirect);

  const Environment& environment_;
  void* curl_;
};

/// `text` with everything but unreserved characters as %XX; '/' stays where `keep_slash`.
std::string url_encode(std::string_view text, bool keep_slash);

}  // namespace lorikeet::hub
