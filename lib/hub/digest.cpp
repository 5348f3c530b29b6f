#include "hub/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/file_pieces.h"
#include "base/hash.h"

namespace lorikeet::hub {
namespace {

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
  if (kind == Digest::Kind::kGitSha1) {
    const std::string head = "blob " + std::to_string(file.bytes().size());
    EVP_DigestUpdate(context.get(), head.c_str(), head.size() + 1);  // with the NUL
  }
  for_each_piece(
      file, [&](std::string_view piece) { EVP_DigestUpdate(context.get(), piece.data(), piece.size()); });
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &length);
  return {kind, to_hex({reinterpret_cast<const char*>(digest.data()), length})};
}

}  // namespace lorikeet::hub
