#include "hub/repository.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using Catch::Contains;
using hub::RepositoryKind;

TEST_CASE("a repository's name has its folder in the cache") {
  const hub::Repository model = hub::parse_repository("Qwen/Qwen3-0.6B", RepositoryKind::kModel);
  CHECK(model.folder_name() == "models--Qwen--Qwen3-0.6B");
  CHECK(model.revision == "main");
  CHECK(model.describe() == "Qwen/Qwen3-0.6B");
  const hub::Repository old = hub::parse_repository("gpt2@refs/pr/3", RepositoryKind::kModel);
  CHECK(old.folder_name() == "models--gpt2");
  CHECK(old.describe() == "gpt2@refs/pr/3");
  CHECK(hub::parse_repository("tatsu-lab/alpaca", RepositoryKind::kDataset).folder_name() ==
        "datasets--tatsu-lab--alpaca");
}

TEST_CASE("names that could lead elsewhere are refused") {
  for (const char* bad :
       {"",     "/",       "a/",         "/b",     "a/b/c",  "..",      "a/..",  "../b",
        "a--b", "a/b.git", ".a/b",       "a/-b",   "a/b.",   "a b",     "a/b?x", "https://a/b",
        "a/b@", "a/b@..",  "a/b@x/../y", "a/b@-x", "a/b@/x", "a/b@x y", "a/b@.x"})
    CHECK_THAT(test::error_text([&] { hub::parse_repository(bad, RepositoryKind::kModel); }),
               Contains("[hub] expected"));
}

TEST_CASE("a path of the Hub names a repository, a revision and, for data, a file") {
  CHECK_FALSE(hub::parse_hub_path("models/x", RepositoryKind::kModel));
  CHECK_FALSE(hub::parse_hub_path("github:a/b", RepositoryKind::kModel));
  const auto model = hub::parse_hub_path("hub:a/b@v1.0", RepositoryKind::kModel);
  REQUIRE(model);
  CHECK(model->repository.name == "a/b");
  CHECK(model->repository.revision == "v1.0");
  CHECK(model->file.empty());
  const auto data = hub::parse_hub_path("hub:a/b@v1/data/*.parquet", RepositoryKind::kDataset);
  REQUIRE(data);
  CHECK(data->repository.revision == "v1");
  CHECK(data->file == "data/*.parquet");
  CHECK_THAT(test::error_text([] { hub::parse_hub_path("hub:a/b/config.json", RepositoryKind::kModel); }),
             Contains("give hub:a/b"));
  CHECK_THAT(test::error_text([] { hub::parse_hub_path("hub:a/b/../../x", RepositoryKind::kDataset); }),
             Contains("could lead out of it"));
  CHECK_THAT(test::error_text([] { hub::parse_hub_path("hub:", RepositoryKind::kModel); }),
             Contains("OWNER/NAME"));
}
