#pragma once

#include <string>
#include <vector>

namespace lorikeet {

/// What execv takes: a pointer to each text, a null pointer at the end. Valid as long as `texts` is
/// unchanged.
inline std::vector<char*> c_strings(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace lorikeet
