#include "base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"

namespace lorikeet {

std::string hmac_sha256_hex(std::string_view key, std::string_view bytes) {
  std::string digest(32, '\0');
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
           reinterpret_cast<unsigned char*>(digest.data()), &size) == nullptr ||
      size != digest.size()) {
    throw Error("[hash] OpenSSL can't make an HMAC", ErrorKind::kEnvironment);
  }
  return to_hex(digest);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0');
  for (std::size_t have = 0; have < bytes;) {
    const ssize_t count = getrandom(raw.data() + have, bytes - have, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(std::string("[hash] getrandom: ") + std::strerror(errno), ErrorKind::kEnvironment);
    }
    have += static_cast<std::size_t>(count);
  }
  return to_hex(raw);
}

}  // namespace lorikeet
