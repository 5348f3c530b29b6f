#include "hub/server_error.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>

#include "base/strings.h"

namespace lorikeet::hub {
namespace {

std::string page_of(const Repository& repository, const Environment& environment) {
  return environment.endpoint + (repository.kind == RepositoryKind::kDataset ? "/datasets/" : "/") +
         repository.name;
}

std::string how_to_log_in(const Environment& environment) {
  return environment.token
             ? "the token that was sent isn't accepted or hasn't the right to read it: make one at " +
                   environment.endpoint + "/settings/tokens"
             : "no token was sent: set HF_TOKEN, or run `hf auth login`";
}

}  // namespace

Error server_error(const HttpAnswer& answer, const Repository& repository, const std::string& what,
                   const Environment& environment) {
  const std::string code = answer.header("x-error-code");
  const std::string start = "[hub] " + repository.describe() + ": ";
  const std::string status = " (" + std::to_string(answer.status) + " for " + what + ")";
  if (code == "GatedRepo" || (answer.status == 403 && code.empty()))
    return Error(start + "access is gated" + status + "; accept its terms at " +
                 page_of(repository, environment) + " with the account of your token; " +
                 how_to_log_in(environment));
  if (code == "RevisionNotFound" || (answer.status == 404 && code.empty() && repository.revision != "main"))
    return Error(start + "there is no revision '" + repository.revision + "'" + status + "; " +
                 page_of(repository, environment) + "/tree/main lists branches and tags");
  if (code == "EntryNotFound") return Error(start + "the repository doesn't hold " + what + status);
  if (answer.status == 401 || answer.status == 404)
    return Error(start + "there is no such " +
                 (repository.kind == RepositoryKind::kDataset
                      ? "data set (a model is asked for without --dataset)"
                      : "model (data sets need --dataset)") +
                 ", or it is private" + status + "; see " + page_of(repository, environment) + "; " +
                 how_to_log_in(environment));
  const std::string message = escape_control(answer.header("x-error-message"));
  const bool ours = answer.status >= 400 && answer.status < 500 && !is_temporary(answer.status);
  return Error(start + "the server answers " + std::to_string(answer.status) + " for " + what +
                   (message.empty() ? "" : ": " + message) +
                   (ours ? "" : "; run the same command later, it goes on where it stopped"),
               ours ? ErrorKind::kUsage : ErrorKind::kEnvironment);
}

bool is_temporary(long status) {
  static constexpr std::array<long, 6> kTemporary{408, 429, 500, 502, 503, 504};
  return std::find(kTemporary.begin(), kTemporary.end(), status) != kTemporary.end();
}

std::optional<double> seconds_to_wait(const HttpAnswer& answer) {
  const std::string text = answer.header("retry-after");
  if (!text.empty()) {
    char* end = nullptr;
    const double seconds = std::strtod(text.c_str(), &end);
    if (end != text.c_str() && *end == '\0') return seconds >= 0 ? std::min(seconds, 1e6) : 0;
    const time_t date = curl_getdate(text.c_str(), nullptr);
    if (date != -1) return std::max(0.0, std::difftime(date, std::time(nullptr)));
  }
  // RateLimit: "api";r=0;t=55
  const std::string limit = answer.header("ratelimit");
  const std::size_t at = limit.find(";t=");
  if (at == std::string::npos) return std::nullopt;
  const double seconds = std::strtod(limit.c_str() + at + 3, nullptr);
  return seconds >= 0 ? std::min(seconds, 1e6) : 0;
}

}  // namespace lorikeet::hub
