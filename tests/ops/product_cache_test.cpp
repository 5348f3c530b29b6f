#include "ops/matmul/product_cache.h"

#include <cstdlib>
#include <map>
#include <string>

#include "support/catch.h"

using namespace lorikeet;

namespace {

// Removes the libraries' variables, and puts them back in the end.
class Environment {
 public:
  Environment() {
    for (auto& [name, value] : before_) {
      if (const char* text = std::getenv(name.c_str())) value = text;
      unsetenv(name.c_str());
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) {
      unsetenv(name.c_str());
      if (!value.empty()) setenv(name.c_str(), value.c_str(), 1);
    }
  }

 private:
  std::map<std::string, std::string> before_{{"LRU_CACHE_CAPACITY", ""},
                                             {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", ""},
                                             {"DNNL_PRIMITIVE_CACHE_CAPACITY", ""}};
};

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

TEST_CASE("both caches of products are bounded") {
  const Environment environment;
  ops::bound_product_caches();
  const std::string most = std::to_string(ops::kProductCacheRules.products);
  CHECK(value_of("LRU_CACHE_CAPACITY") == most);
  CHECK(value_of("ONEDNN_PRIMITIVE_CACHE_CAPACITY") == most);
}

TEST_CASE("a bound that the environment sets already stays") {
  const Environment environment;
  setenv("LRU_CACHE_CAPACITY", "500", 1);
  setenv("DNNL_PRIMITIVE_CACHE_CAPACITY", "300", 1);
  ops::bound_product_caches();
  CHECK(value_of("LRU_CACHE_CAPACITY") == "500");
  CHECK(value_of("ONEDNN_PRIMITIVE_CACHE_CAPACITY").empty());
}
