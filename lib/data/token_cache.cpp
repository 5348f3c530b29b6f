#include "data/token_cache.h"

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/cache_files.h"
#include "text/folder_config.h"

namespace lorikeet::data {
namespace {

// Raise whenever the same rows would give other tokens or labels, or the file's layout changes.
constexpr std::string_view kVersion = "8";

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
    const FileFacts facts = facts_of(file_of(key));
    const auto whole = notes_.recall(file_of(key));
    TokenizedFile entry = read_token_file(file_of(key), /*check_words=*/!whole);
    if (!whole) notes_.keep(file_of(key), facts, entry.dataset.fingerprint());
    if (whole.value_or(entry.dataset.fingerprint()) != entry.dataset.fingerprint())
      throw Error("it isn't the one that was checked");
    return entry;
  } catch (const Error& damage) {
    log_warning("[data.cache_dir] '" + file_of(key).string() + "' is damaged (" + damage.what() +
                "); tokenising again");
    return std::nullopt;
  }
}

std::optional<TokenizedFile> TokenCache::store(const std::string& key, const TokenRows& rows,
                                               const TokenizedFile& about) const {
  try {
    const auto file = writer(key);
    if (!file) return std::nullopt;
    file->append(rows);
    TokenizedFile entry = file->finish(about);
    note_whole(key, entry.dataset.fingerprint());
    return entry;
  } catch (const Error& problem) {
    log_warning(std::string("[data.cache_dir] the tokenised data couldn't be kept: ") + problem.what());
    return std::nullopt;
  }
}

std::unique_ptr<TokenFileWriter> TokenCache::writer(const std::string& key) const {
  if (!prepare_folder()) return nullptr;
  try {
    return TokenFileWriter::make_named(file_of(key));
  } catch (const Error& problem) {
    log_warning(std::string("[data.cache_dir] the tokenised data can't be kept: ") + problem.what());
    return nullptr;
  }
}

void TokenCache::note_whole(const std::string& key, const std::string& fingerprint) const {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(file_of(key), error);
  if (!error && notes_.wants(bytes)) notes_.keep(file_of(key), facts_of(file_of(key)), fingerprint);
}

std::string TokenCache::sha256_of(const std::filesystem::path& file, const FileFacts& now) const {
  if (auto known = notes_.wants(now.size) ? notes_.recall(file) : std::nullopt) return *known;
  std::string sha256 = file_sha256(file);
  if (notes_.wants(now.size) && prepare_folder()) notes_.keep(file, now, sha256);
  return sha256;
}

std::string cache_key(const std::string& content, const DataOptions& options,
                      const text::Tokenizer& tokenizer) {
  Sha256 key;
  key.field(kVersion).field(content).field(tokenizer.fingerprint());
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
