#include "hub/environment.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/home.h"
#include "base/strings.h"

namespace lorikeet::hub {
namespace {

constexpr std::size_t kMostTokenBytes = 1U << 16;

class Variables {
 public:
  explicit Variables(const ReadVariable& read) : read_(read) {}

  // The value of the first that is set and not empty.
  std::optional<std::string> first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const char* value = read_(name);
      if (value != nullptr && *value != '\0') return value;
    }
    return std::nullopt;
  }

  bool is_true(std::initializer_list<const char*> names) const {
    const std::string value = ascii_lower(first_of(names).value_or(""));
    return value == "1" || value == "on" || value == "yes" || value == "true";
  }

 private:
  const ReadVariable& read_;
};

std::filesystem::path home_of_hub(const Variables& variables) {
  if (const auto home = variables.first_of({"HF_HOME"})) return expand_home(*home);
  if (const auto cache = variables.first_of({"XDG_CACHE_HOME"}))
    return std::filesystem::path(*cache) / "huggingface";
  if (const auto home = variables.first_of({"HOME"}))
    return std::filesystem::path(*home) / ".cache" / "huggingface";
  throw Error(
      "[hub] expected the variable HF_HOME or HOME, to know where the cache is; set HF_HOME to a folder");
}

std::string checked_endpoint(std::string endpoint) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const bool known = endpoint.starts_with("https://") || endpoint.starts_with("http://");
  const bool plain = std::none_of(endpoint.begin(), endpoint.end(), [](unsigned char c) {
    return c <= ' ' || c >= 0x7f || c == '?' || c == '#' || c == '@' || c == '\\';
  });
  if (!known || !plain || endpoint.find("//") + 2 == endpoint.size())
    throw Error("[hub] HF_ENDPOINT: expected a URL such as https://huggingface.co, got '" +
                escape_control(endpoint) + "'");
  return endpoint;
}

// The text isn't part of the error: a token is never printed.
std::optional<std::string> checked_token(const std::string& text, const std::string& source) {
  std::string token = trim(text);
  if (token.empty()) return std::nullopt;
  if (std::any_of(token.begin(), token.end(), [](unsigned char c) { return c <= ' ' || c >= 0x7f; }))
    throw Error("[hub] " + source + ": expected a token, one word of ASCII characters, got something else");
  return token;
}

std::optional<std::string> read_token(const Variables& variables, const std::filesystem::path& home) {
  if (variables.is_true({"HF_HUB_DISABLE_IMPLICIT_TOKEN"})) return std::nullopt;
  if (const auto token = variables.first_of({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}))
    return checked_token(*token, "HF_TOKEN");
  const auto named = variables.first_of({"HF_TOKEN_PATH"});
  const std::filesystem::path path = named ? std::filesystem::path(expand_home(*named)) : home / "token";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  return checked_token(read_file(path, kMostTokenBytes),
                       "the token file '" + escape_control(path.string()) + "'");
}

}  // namespace

Environment read_environment(const ReadVariable& read) {
  const Variables variables(read);
  const std::filesystem::path home = home_of_hub(variables);
  Environment environment;
  if (const auto endpoint = variables.first_of({"HF_ENDPOINT"}))
    environment.endpoint = checked_endpoint(*endpoint);
  const auto cache = variables.first_of({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  environment.cache =
      std::filesystem::absolute(cache ? std::filesystem::path(expand_home(*cache)) : home / "hub");
  environment.token = read_token(variables, home);
  environment.offline = variables.is_true({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"});
  if (const auto seconds = variables.first_of({"HF_HUB_DOWNLOAD_TIMEOUT"}))
    environment.stall_seconds = std::clamp(std::strtol(seconds->c_str(), nullptr, 10), 1L, 3600L);
  return environment;
}

Environment read_environment() {
  return read_environment([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace lorikeet::hub
