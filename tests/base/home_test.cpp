#include "base/home.h"

#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

// HOME as a test wants it, and as it was afterwards.
class Home {
 public:
  explicit Home(const char* value) {
    if (const char* set = std::getenv("HOME")) before_ = set;
    value == nullptr ? unsetenv("HOME") : setenv("HOME", value, 1);
  }
  ~Home() { before_ ? setenv("HOME", before_->c_str(), 1) : unsetenv("HOME"); }
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;

 private:
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("a leading tilde is the home folder, any other stays") {
  const Home home("/h/me");
  CHECK(expand_home("~") == "/h/me");
  CHECK(expand_home("~/a b/c") == "/h/me/a b/c");
  for (const char* same : {"", "a/~/b", "./~", "~other/x", "a~"}) CHECK(expand_home(same) == same);
}

TEST_CASE("a tilde without a home folder is an error, other paths need none") {
  const Home home(GENERATE(static_cast<const char*>(nullptr), ""));
  CHECK_THROWS_WITH(expand_home("~/x"), Catch::Contains("HOME"));
  CHECK(expand_home("x") == "x");
}
