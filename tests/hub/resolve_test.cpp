#include "hub/resolve.h"

#include "support/catch.h"

using namespace lorikeet;

TEST_CASE("a snapshot's folder has its repository's name, other folders have none") {
  const std::string commit(40, 'a');
  CHECK(hub::repository_of_snapshot("/c/models--Qwen--Qwen3-0.6B/snapshots/" + commit) == "Qwen/Qwen3-0.6B");
  CHECK(hub::repository_of_snapshot("/c/models--gpt2/snapshots/" + commit + "/") == "gpt2");
  for (const std::string& folder :
       {std::string("models/x"), std::string("/c/models--a--b/snapshots/main"), "/c/x/snapshots/" + commit,
        "/c/models--a--b/blobs/" + commit, std::string("/"), std::string()})
    CHECK_FALSE(hub::repository_of_snapshot(folder));
}

TEST_CASE("the command for what is absent can be typed as it stands") {
  CHECK(hub::download_command({.kind = hub::RepositoryKind::kModel, .name = "a/b"}) ==
        "lorikeet download a/b");
  CHECK(hub::download_command({.kind = hub::RepositoryKind::kDataset, .name = "a/b", .revision = "v1"},
                              {"data/*.csv"}) ==
        "lorikeet download a/b --dataset --revision v1 --include 'data/*.csv'");
}
