#include "device/uuid.h"

#include <algorithm>

namespace lorikeet::device {

bool is_uuid(std::string_view text) { return text.starts_with("GPU-") || text.starts_with("MIG-"); }

bool uuid_begins(std::string_view uuid, std::string_view beginning) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return uuid.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), uuid.begin(),
                                                       [&](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace lorikeet::device
