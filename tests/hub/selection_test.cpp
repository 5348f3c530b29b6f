#include "hub/selection.h"

#include "base/strings.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using Catch::Contains;
using hub::RepositoryKind;

namespace {

std::string taken(const std::vector<std::string>& paths, RepositoryKind kind,
                  const std::vector<std::string>& include = {}) {
  hub::FileList list;
  for (const std::string& path : paths) list.files.push_back({.path = path, .size = 1, .digest = {}});
  std::vector<std::string> names;
  for (const auto& file : hub::select_files(list, {.kind = kind, .name = "a/b"}, include).files)
    names.push_back(file.path);
  return join(names, " ");
}

}  // namespace

TEST_CASE("of a model the usual weights are taken, not their variants and second copies") {
  CHECK(
      taken({"config.json", "model.safetensors", "model.fp16.safetensors", "consolidated.safetensors",
             "original/consolidated.00.pth", "onnx/model.onnx", "README.md", "x.gguf", "merges.txt",
             "tokenizer.model", "chat_template.jinja", "training_args.bin", "modeling.py", "sub/config.json"},
            RepositoryKind::kModel) ==
      "config.json model.safetensors merges.txt tokenizer.model chat_template.jinja");
  CHECK(taken({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
               "model.safetensors.index.json", "consolidated-00001-of-00002.safetensors"},
              RepositoryKind::kModel) ==
        "model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json");
  CHECK(taken({"adapter_config.json", "adapter_model.safetensors"}, RepositoryKind::kModel) ==
        "adapter_config.json adapter_model.safetensors");
}

TEST_CASE("of a data set the data files of all folders are taken") {
  CHECK(taken({"data/train.parquet", "a.jsonl", "b.jsonl.gz", "c.csv.zst", "d.py", "e.pkl", "f.tar.gz",
               "g.md", "h.py.gz"},
              RepositoryKind::kDataset) == "data/train.parquet a.jsonl b.jsonl.gz c.csv.zst");
  CHECK_THAT(test::error_text([] { taken({"rows.py", "README.md"}, RepositoryKind::kDataset); }),
             Contains("no file to download") && Contains("--include"));
}

TEST_CASE("globs match as huggingface_hub's patterns do") {
  const std::vector<std::string> paths{"a.json", "sub/b.json", "sub/deep/c.json", "d.txt"};
  CHECK(taken(paths, RepositoryKind::kModel, {"*.json"}) == "a.json sub/b.json sub/deep/c.json");
  CHECK(taken(paths, RepositoryKind::kModel, {"sub/"}) == "sub/b.json sub/deep/c.json");
  CHECK(taken(paths, RepositoryKind::kModel, {"d.*", "a.json"}) == "a.json d.txt");
}

TEST_CASE("what may run code is never taken, in whatever case it is written") {
  for (const char* path : {"a.bin", "a.PT", "b/a.pth", "a.pkl", "a.Py", "a.npy", "a.so", "a.ckpt"}) {
    CHECK(hub::may_run_code(path));
    CHECK_THAT(test::error_text([&] { taken({path}, RepositoryKind::kModel, {"*"}); }),
               Contains("never downloaded"));
  }
  CHECK_FALSE(hub::may_run_code("pytorch_model.bin.index.json"));
  CHECK_THAT(test::error_text([] { taken({"config.json", "pytorch_model.bin"}, RepositoryKind::kModel); }),
             Contains("only pickles (pytorch_model.bin)"));
}
