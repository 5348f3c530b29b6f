#include <sys/stat.h>

#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "comm/rendezvous.h"

namespace lorikeet::comm {
namespace {

// Anyone who poses as node 0 gets a joiner's proof to try secrets on: a short one would be found.
constexpr std::size_t kShortestSecret = 16;
constexpr std::size_t kLongestSecret = 4096;
constexpr const char* kVariable = "LORIKEET_SECRET";

std::string checked(const std::string& text, const std::string& where) {
  std::string secret = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  if (secret.size() < kShortestSecret || secret.size() > kLongestSecret) {
    throw Error("[launch: " + where + "] expected a secret of " + std::to_string(kShortestSecret) + " to " +
                std::to_string(kLongestSecret) + " characters, got " + std::to_string(secret.size()) +
                "; make one with: openssl rand -hex 32");
  }
  return secret;
}

}  // namespace

std::optional<std::string> read_secret(const std::optional<std::string>& file) {
  if (!file) {
    const char* value = std::getenv(kVariable);
    return value == nullptr ? std::nullopt : std::optional(checked(value, kVariable));
  }
  struct stat status {};
  const bool there = stat(file->c_str(), &status) == 0;
  if (there && !S_ISREG(status.st_mode)) {
    throw Error("[launch: --secret-file] '" + escape_control(*file) +
                "' is not a file; make one with: " + "(umask 077; openssl rand -hex 32 > FILE)");
  }
  if (there && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Error("[launch: --secret-file] others than its owner may use '" + escape_control(*file) +
                "'; run chmod 600 on it");
  }
  return checked(read_file(*file, kLongestSecret + 64), "--secret-file");
}

}  // namespace lorikeet::comm
