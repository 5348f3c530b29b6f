#include "hub/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace lorikeet::hub {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{8} << 20;

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

bool is_hex(const std::string& text, std::size_t length) {
  return text.size() == length && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Digest file_digest(const std::filesystem::path& path, Digest::Kind kind) {
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  const EVP_MD* type = kind == Digest::Kind::kSha256 ? EVP_sha256() : EVP_sha1();
  if (!context || EVP_DigestInit_ex(context.get(), type, nullptr) != 1)
    throw Error("[hub] OpenSSL can't start a checksum", ErrorKind::kEnvironment);
  const MappedFile file(path);
  const std::string_view bytes = file.bytes();
  if (kind == Digest::Kind::kGitSha1) {
    const std::string head = "blob " + std::to_string(bytes.size());
    EVP_DigestUpdate(context.get(), head.c_str(), head.size() + 1);  // with the NUL
  }
  for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    const std::string_view piece = bytes.substr(at, kPieceBytes);
    EVP_DigestUpdate(context.get(), piece.data(), piece.size());
    file.drop_pages(at, piece.size());
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &length);
  return {kind, to_hex({reinterpret_cast<const char*>(digest.data()), length})};
}

}  // namespace lorikeet::hub
