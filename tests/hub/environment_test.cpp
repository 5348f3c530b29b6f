#include "hub/environment.h"

#include <map>

#include "base/file.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

hub::Environment read(const std::map<std::string, std::string>& variables) {
  return hub::read_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("the cache is where huggingface_hub has it") {
  CHECK(read({{"HOME", "/u"}}).cache == "/u/.cache/huggingface/hub");
  CHECK(read({{"HOME", "/u"}, {"XDG_CACHE_HOME", "/x"}}).cache == "/x/huggingface/hub");
  CHECK(read({{"HOME", "/u"}, {"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/h"}}).cache == "/h/hub");
  CHECK(read({{"HF_HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}).cache == "/old");
  CHECK(read({{"HF_HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}, {"HF_HUB_CACHE", "/new"}}).cache ==
        "/new");
  CHECK(read({{"HF_HOME", "/h"}, {"HF_HUB_CACHE", ""}}).cache == "/h/hub");
  CHECK_THAT(test::error_text([] { read({}); }), Contains("HF_HOME"));
}

TEST_CASE("the token comes from its variable, else from its file, and may be kept back") {
  const test::TemporaryFolder home;
  const std::string folder = home.path().string();
  CHECK_FALSE(read({{"HF_HOME", folder}}).token);
  write_file_atomic(home / "token", "hf_file\r\n");
  write_file_atomic(home / "other", "hf_other");
  CHECK(read({{"HF_HOME", folder}}).token == "hf_file");
  CHECK(read({{"HF_HOME", folder}, {"HF_TOKEN_PATH", folder + "/other"}}).token == "hf_other");
  CHECK(read({{"HF_HOME", folder}, {"HF_TOKEN", " hf_variable "}}).token == "hf_variable");
  CHECK(read({{"HF_HOME", folder}, {"HF_TOKEN", ""}}).token == "hf_file");
  CHECK_FALSE(read({{"HF_HOME", folder}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}).token);
}

TEST_CASE("a token that can't stand in a header is refused without being printed") {
  const std::string text = test::error_text([] { read({{"HOME", "/u"}, {"HF_TOKEN", "hf_a\nX-Evil: 1"}}); });
  CHECK_THAT(text, Contains("HF_TOKEN") && !Contains("hf_a") && !Contains("Evil"));
}

TEST_CASE("the endpoint is a URL, plain http only where it is given so") {
  CHECK(read({{"HOME", "/u"}}).endpoint == "https://huggingface.co");
  CHECK(read({{"HOME", "/u"}, {"HF_ENDPOINT", "http://mirror:8080/hub//"}}).endpoint ==
        "http://mirror:8080/hub");
  for (const char* bad :
       {"mirror", "ftp://mirror", "https://", "https://user:secret@mirror", "https://a b", "file:///x"})
    CHECK_THAT(test::error_text([&] { read({{"HOME", "/u"}, {"HF_ENDPOINT", bad}}); }),
               Contains("HF_ENDPOINT"));
}

TEST_CASE("offline is what huggingface_hub takes for true") {
  for (const char* yes : {"1", "ON", "yes", "True"})
    CHECK(read({{"HOME", "/u"}, {"HF_HUB_OFFLINE", yes}}).offline);
  for (const char* no : {"0", "off", "", "2"})
    CHECK_FALSE(read({{"HOME", "/u"}, {"HF_HUB_OFFLINE", no}}).offline);
}
