#include "data/token_cache.h"

#include <array>
#include <cstring>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "data/cache_files.h"
#include "text/folder_config.h"

namespace lorikeet::data {
namespace {

// Raise whenever the same rows would give other tokens or labels, or the file's layout changes.
constexpr std::string_view kVersion = "5";
constexpr std::array<char, 8> kMagic{'L', 'K', 'T', 'O', 'K', 'E', 'N', '1'};

// The file: Header, meta (JSON, padded with blanks to 8 bytes), the data set's bytes.
struct Header {
  std::array<char, 8> magic;
  std::uint64_t meta_bytes;
  std::uint64_t data_bytes;
  std::array<char, 64> sha256;  // over meta and data
};

std::string meta_of(const TokenizedFile& entry) {
  Json meta;
  meta.set("format", entry.format)
      .set("template", entry.template_description)
      .set("fingerprint", entry.dataset.fingerprint())
      .set("rows", entry.counts.rows)
      .set("truncated", entry.counts.truncated)
      .set("dropped", entry.counts.dropped)
      .set("without_labels", entry.counts.without_labels)
      .set("split", entry.counts.split)
      .set("unknown_ids", entry.counts.unknown_ids);
  std::string text = meta.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

TokenizedFile read_entry(const std::filesystem::path& path) {
  const auto map = std::make_shared<const MappedFile>(path);
  const std::string_view bytes = map->bytes();
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw Error(what);
  };
  Header header{};
  require(bytes.size() >= sizeof header, "it is cut short");
  std::memcpy(&header, bytes.data(), sizeof header);
  require(header.magic == kMagic, "it is no cache file of this version");
  const std::string_view body = bytes.substr(sizeof header);
  require(header.meta_bytes <= body.size() && header.data_bytes == body.size() - header.meta_bytes,
          "its size is wrong");
  require(sha256_hex(body) == std::string_view(header.sha256.data(), header.sha256.size()),
          "its checksum is wrong");
  const Json meta = Json::parse(body.substr(0, header.meta_bytes), "cache");
  const JsonView view(meta, "cache");
  TokenizedFile entry;
  entry.dataset =
      TokenDataset::from_bytes(body.substr(header.meta_bytes), map, view.at("fingerprint").as_string());
  entry.format = view.at("format").as_string();
  entry.template_description = view.at("template").as_string();
  entry.counts = {view.at("rows").as_int(),    view.at("truncated").as_int(),
                  view.at("dropped").as_int(), view.at("without_labels").as_int(),
                  view.at("split").as_int(),   view.at("unknown_ids").as_int()};
  return entry;
}

// Tools are a part of the rows; the template for them is one of these.
void add_templates(const text::TemplateSources& templates, Sha256& key) {
  for (const auto& source : {templates.main, templates.with_tools})
    key.field(source ? "source" : "none").field(source.value_or(""));
  for (const auto& [name, token] : templates.tokens) key.field(name).field(token);
  key.field("end of tokens");
}

}  // namespace

std::optional<std::filesystem::path> default_cache_dir() {
  const auto folder = cache_folder();
  return folder ? std::optional(*folder / "tokens") : std::nullopt;
}

bool TokenCache::prepare_folder() const {
  if (const std::string problem = prepare_cache_folder(folder_); !problem.empty()) {
    log_warning("[data.cache_dir] '" + folder_.string() + "' can't be used, " + problem +
                "; going on without a cache");
    return false;
  }
  remove_stale_temporaries(folder_);
  return true;
}

std::optional<TokenizedFile> TokenCache::find(const std::string& key) const {
  std::error_code error;
  if (!std::filesystem::exists(file_of(key), error) || !prepare_folder()) return std::nullopt;
  if (!is_own_file(file_of(key))) {
    log_warning("[data.cache_dir] '" + file_of(key).string() +
                "' is a link, another user's, or others may write it; tokenising again");
    return std::nullopt;
  }
  try {
    return read_entry(file_of(key));
  } catch (const Error& damage) {
    log_warning("[data.cache_dir] '" + file_of(key).string() + "' is damaged (" + damage.what() +
                "); tokenising again");
    return std::nullopt;
  }
}

std::optional<TokenizedFile> TokenCache::store(const std::string& key, const TokenizedFile& entry) const {
  if (!prepare_folder()) return std::nullopt;
  try {
    const std::string meta = meta_of(entry);
    Header header{};
    std::string bytes = entry.dataset.to_bytes(std::string(sizeof header, '\0') + meta);
    const std::string_view body = std::string_view(bytes).substr(sizeof header);
    header.magic = kMagic;
    header.meta_bytes = meta.size();
    header.data_bytes = body.size() - meta.size();
    const std::string sha256 = sha256_hex(body);
    std::copy(sha256.begin(), sha256.end(), header.sha256.begin());
    std::memcpy(bytes.data(), &header, sizeof header);
    write_file_atomic(file_of(key), bytes, 0600);
    return read_entry(file_of(key));
  } catch (const Error& problem) {
    log_warning(std::string("[data.cache_dir] the tokenised data couldn't be kept: ") + problem.what());
    return std::nullopt;
  }
}

std::string cache_key(std::string_view file_bytes, const DataOptions& options,
                      const text::Tokenizer& tokenizer) {
  Sha256 key;
  key.field(kVersion).field(sha256_hex(file_bytes)).field(tokenizer.fingerprint());
  // bos_token and eos_token come from files of their own, which a fingerprint of the vocabulary may leave
  // out.
  for (const auto& id : {tokenizer.bos_id(), tokenizer.eos_id()})
    key.field(id ? std::to_string(*id) : "none");
  key.field(options.chat_template).field(options.template_date);
  add_templates(tokenizer.templates(), key);
  std::error_code error;
  if (std::filesystem::is_regular_file(options.chat_template, error))
    key.field(read_file(options.chat_template, 1 << 20));
  if (std::filesystem::is_directory(options.chat_template, error))
    add_templates(text::templates_of(text::read_folder_config(options.chat_template)), key);
  key.field(options.format);
  for (const auto& [name, column] : options.columns) key.field(name).field(column);
  key.field("end of columns").field(std::to_string(options.max_seq_len));
  key.field(options.preset).field(options.limit ? std::to_string(*options.limit) : "all");
  for (const auto& row_template : {options.prompt, options.completion})
    key.field(row_template ? "template" : "none").field(row_template.value_or(""));
  key.field(std::to_string(static_cast<int>(options.overlong)))
      .field(std::to_string(static_cast<int>(options.train_on)))
      .field(std::to_string(options.embedding_rows));
  return key.hex();
}

}  // namespace lorikeet::data
