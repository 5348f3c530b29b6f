#include "data/load.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "base/counted.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "data/file_notes.h"
#include "data/mixture.h"
#include "data/open_records.h"
#include "data/presets.h"
#include "data/row_plan.h"
#include "data/sampler.h"
#include "data/source_files.h"
#include "data/token_collector.h"

namespace lorikeet::data {
namespace {

constexpr std::size_t kRowsTried = 64;

void check(const DataOptions& options) {
  if (options.max_seq_len < 2 || options.max_seq_len > INT32_MAX)
    throw Error("[data.max_seq_len] expected at least 2, got " + std::to_string(options.max_seq_len));
  if (options.validation_path && options.validation_fraction != 0.0)
    throw Error("[data.validation] expected a path or a fraction, got both");
}

std::string source_name(const std::filesystem::path& path) {
  constexpr std::string_view kPrefix = "datasets--";
  const std::filesystem::path folder = path.has_filename() ? path : path.parent_path();  // "folder/"
  const std::filesystem::path snapshots = folder.parent_path();
  std::string repository = snapshots.parent_path().filename().string();
  // The name of a snapshot in the Hub's cache is a hash: datasets--OWNER--NAME/snapshots/COMMIT.
  if (snapshots.filename() != "snapshots" || !repository.starts_with(kPrefix))
    return escape_control(folder.filename().string());
  repository.erase(0, kPrefix.size());
  if (const std::size_t dashes = repository.find("--"); dashes != std::string::npos)
    repository.replace(dashes, 2, "/");
  return escape_control(repository);
}

// The files of a source as they were before anything of them was read.
class SourceFiles {
 public:
  SourceFiles(const std::filesystem::path& path, const std::string& split)
      : paths_(find_source_files(path, split)) {
    for (const std::filesystem::path& file : paths_) before_.push_back(facts_of(file));
  }

  const std::vector<std::filesystem::path>& paths() const { return paths_; }

  /// Names and content of all, for the cache's key: the names' endings have a say in how they are read.
  std::string describe_content(const TokenCache& cache) const {
    std::string content;
    for (std::size_t i = 0; i < paths_.size(); ++i)
      content += cache.sha256_of(paths_[i], before_[i]) + " " + paths_[i].filename().string() + "\n";
    return content;
  }

  void require_unchanged() const {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      if (facts_of(paths_[i]) == before_[i]) continue;
      throw Error("[data] '" + source_name(paths_[i]) +
                      "' was changed while it was read; start again when nothing writes to it any more",
                  ErrorKind::kRunFailed);
    }
  }

 private:
  std::vector<std::filesystem::path> paths_;
  std::vector<FileFacts> before_;
};

// Where tokens go that fit neither memory nor a cache.
std::filesystem::path spill_folder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (!error) return folder;
  throw Error("[data] the tokens don't fit memory, and there is no folder for temporary files (" +
                  error.message() + "); set TMPDIR, or data.cache_dir",
              ErrorKind::kEnvironment);
}

void set_totals(const TokenDataset& dataset, FileReport& report) {
  report.examples = static_cast<std::int64_t>(dataset.size());
  report.tokens = dataset.total_tokens();
  report.label_tokens = dataset.total_labels();
  report.longest = dataset.longest();
}

std::unique_ptr<RecordSource> open_files(const std::vector<std::filesystem::path>& files,
                                         const std::filesystem::path& path, const RowOptions& options) {
  auto source = open_record_files(files, source_name(path));
  source = reshape_rows(std::move(source), resolve_preset(options));
  if (options.limit) source = first_records(std::move(source), static_cast<std::size_t>(*options.limit));
  return source;
}

// How the rows of a source become tokens.
struct RowReading {
  RowReading(const RecordSource& rows, const DataOptions& given, const text::Tokenizer& tokenizer)
      : plan(plan_rows(rows, given, tokenizer)), options(given), encoder(plan.chat_template, tokenizer) {
    options.columns = plan.columns;
  }

  RowPlan plan;
  DataOptions options;
  text::PromptEncoder encoder;
};

// What is to be said about a source beside its tokens, which go to `sink`.
TokenizedFile tokenize_rows(const RecordSource& rows, const DataOptions& options,
                            const text::Tokenizer& tokenizer, const TokenSink& sink) {
  const RowReading reading(rows, options, tokenizer);
  TokenizedFile about;
  about.format = reading.plan.format_description;
  about.template_description = reading.plan.chat_template.description;
  about.counts = tokenize_file(rows, reading.plan.format, reading.options, reading.encoder, sink);
  return about;
}

// `cache` may be null.
TokenizedFile tokenize(const std::filesystem::path& path, const SourceFiles& files,
                       const DataOptions& options, const text::Tokenizer& tokenizer, const TokenCache* cache,
                       const std::string& key) {
  bool cached = false;
  TokenCollector collector(options.most_memory_bytes, [&] {
    std::unique_ptr<TokenFileWriter> named = cache != nullptr ? cache->writer(key) : nullptr;
    cached = named != nullptr;
    return cached ? std::move(named) : TokenFileWriter::make_anonymous(spill_folder());
  });
  TokenizedFile out = tokenize_rows(*open_files(files.paths(), path, options), options, tokenizer,
                                    [&](const TokenRows& rows) { collector.add(rows); });
  files.require_unchanged();
  if (collector.file() != nullptr) {
    out = collector.finish_file(out);
    if (cached) cache->note_whole(key, out.dataset.fingerprint());
    return out;
  }
  if (cache != nullptr) {
    if (auto kept = cache->store(key, collector.rows(), out)) return *std::move(kept);
  }
  out.dataset = TokenDataset(std::move(collector.rows()));
  return out;
}

// The report of a mixture of what `sources` report on.
FileReport sum_of(std::vector<FileReport> sources, const TokenDataset& mixture) {
  FileReport sum;
  std::vector<std::string> names;
  for (const FileReport& source : sources) {
    names.push_back(source.file);
    sum.counts += source.counts;
    sum.seconds += source.seconds;
    if (sum.template_description.empty()) {
      sum.format = source.format;
      sum.rows = source.rows;
      sum.template_description = source.template_description;
    }
  }
  sum.file = join(names, " + ");
  sum.cache_hit =
      std::all_of(sources.begin(), sources.end(), [](const FileReport& s) { return s.cache_hit; });
  sum.sources = std::move(sources);
  set_totals(mixture, sum);
  return sum;
}

TokenDataset join(const std::vector<MixturePart>& parts, const std::vector<std::vector<std::int64_t>>& counts,
                  std::size_t most_memory_bytes) {
  TokenCollector collector(most_memory_bytes, [] { return TokenFileWriter::make_anonymous(spill_folder()); });
  std::vector<std::uint32_t> chosen =
      join_parts(parts, counts, [&](const TokenRows& rows) { collector.add(rows); });
  const TokenDataset joined = collector.file() != nullptr ? collector.finish_file({}).dataset
                                                          : TokenDataset(std::move(collector.rows()));
  return chosen.empty() ? joined : joined.subset(std::move(chosen));
}

LoadedFile load_mixture(const DataOptions& options, const text::Tokenizer& tokenizer) {
  std::vector<MixturePart> parts;
  std::vector<FileReport> reports;
  for (const MixtureSource& source : options.sources) {
    DataOptions of_source = options;
    static_cast<RowOptions&>(of_source) = source.rows;
    LoadedFile loaded = load_file(source.path, of_source, tokenizer);
    parts.push_back({std::move(loaded.dataset), source.weight});
    reports.push_back(std::move(loaded.report));
  }
  std::vector<std::vector<std::int64_t>> counts;
  if (options.weighted) {
    counts = mixture_counts(parts, options.mix_by, options.stopping_strategy, options.seed);
  } else {
    for (const MixturePart& part : parts) counts.emplace_back(part.dataset.size(), 1);
  }
  LoadedFile mixture;
  mixture.dataset = join(parts, counts, options.most_memory_bytes);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    FileReport& report = reports[p];
    report.examples = report.tokens = report.label_tokens = 0;
    for (std::size_t i = 0; i < parts[p].dataset.size(); ++i) {
      report.examples += counts[p][i];
      report.tokens += counts[p][i] * parts[p].dataset.length(i);
      report.label_tokens += counts[p][i] * parts[p].dataset.label_count(i);
    }
  }
  mixture.report = sum_of(std::move(reports), mixture.dataset);
  return mixture;
}

// Examples whose rows are for training, and those whose rows are held out.
std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>> split_by_rows(const TokenDataset& dataset,
                                                                                double fraction,
                                                                                std::uint64_t seed) {
  // Rows are in the file's order: those of one row are neighbours.
  const auto begins_row = [&](std::size_t i) {
    return i == 0 || dataset.source_row(i) != dataset.source_row(i - 1);
  };
  std::size_t rows = 0;
  for (std::size_t i = 0; i < dataset.size(); ++i) rows += begins_row(i) ? 1 : 0;
  const std::vector<std::uint32_t> held = split_indices(rows, fraction, seed).second;
  std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>> split;
  std::size_t row = 0, next = 0;  // of the rows, and of those held out
  for (std::size_t i = 0; i < dataset.size(); ++i) {
    if (i > 0 && begins_row(i)) {
      if (next < held.size() && held[next] == row) ++next;
      ++row;
    }
    const bool out = next < held.size() && held[next] == row;
    (out ? split.second : split.first).push_back(static_cast<std::uint32_t>(i));
  }
  return split;
}

}  // namespace

std::unique_ptr<RecordSource> open_source(const std::filesystem::path& path, const RowOptions& options) {
  return open_files(find_source_files(path, options.split), path, options);
}

LoadedFile try_rows(const RecordSource& rows, const DataOptions& options, const text::Tokenizer& tokenizer) {
  const RowReading reading(rows, options, tokenizer);
  LoadedFile tried;
  tried.dataset = TokenDataset(encode_some(rows, reading.plan.format, reading.options, reading.encoder,
                                           kRowsTried, tried.report.counts));
  RowCounts& counts = tried.report.counts;
  if (counts.rows == static_cast<std::int64_t>(rows.size()))
    tried.dataset = choose_examples(tried.dataset, options, counts);
  tried.report.file = rows.name();
  tried.report.format = reading.plan.format_description;
  tried.report.rows = reading.plan.format;
  set_totals(tried.dataset, tried.report);
  return tried;
}

std::optional<std::string> incomplete_rows(const FileReport& report) {
  if (report.counts.incomplete == 0) return std::nullopt;
  return "[data] " + report.file + ": of " + std::to_string(report.counts.incomplete) + " of " +
         counted(report.counts.rows, "row") +
         " the chat template leaves something out: a turn whose role it doesn't know, tools, a tool "
         "call, or a part of an answer, such as its reasoning; rename the role, or choose another "
         "data.chat_template (`lorikeet "
         "preview` shows the rows as they are trained on)";
}

LoadedFile load_file(const std::filesystem::path& path, const DataOptions& options,
                     const text::Tokenizer& tokenizer) {
  const auto start = std::chrono::steady_clock::now();
  check(options);
  const std::optional<std::filesystem::path> folder =
      options.cache_dir ? options.cache_dir : default_cache_dir();
  std::optional<TokenCache> cache;
  if (options.use_cache && folder) cache.emplace(*folder, options.noted_from_bytes);

  std::string key;
  std::optional<TokenizedFile> entry;
  const SourceFiles files(path, options.split);
  if (cache) {
    key = cache_key(files.describe_content(*cache), options, tokenizer);
    entry = cache->find(key);
  }
  LoadedFile loaded;
  loaded.report.cache_hit = entry.has_value();
  if (!entry) entry = tokenize(path, files, options, tokenizer, cache ? &*cache : nullptr, key);
  loaded.dataset = choose_examples(entry->dataset, options, entry->counts);
  FileReport& report = loaded.report;
  report.file = source_name(path);
  report.format = entry->format;
  report.rows = format_from_name(entry->format.substr(0, entry->format.find(' ')));
  report.template_description = entry->template_description;
  report.counts = entry->counts;
  set_totals(loaded.dataset, report);
  if (report.counts.unknown_ids > 0) {
    log_warning("[data] " + report.file + " has " + counted(report.counts.unknown_ids, "id") +
                " beyond the tokenizer's vocabulary (" + std::to_string(tokenizer.vocab_size()) +
                "), though within the model's " + counted(options.embedding_rows, "embedding row") +
                "; check that the file was made for this model");
  }
  if (const auto warning = incomplete_rows(report)) log_warning(*warning);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

DataOptions validation_rows(const DataOptions& options) {
  DataOptions held_out = options;
  held_out.split = options.validation_split;
  held_out.limit = held_out.min_tokens = held_out.max_tokens = std::nullopt;
  held_out.remove_duplicates = false;
  return held_out;
}

void read_validation(const DataOptions& options, const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    const std::string text = error.what();
    if (options.sources.empty() || text.find("data.train.") == std::string::npos) throw;
    throw Error(
        "[data.validation.path] " + text +
            "; but with several sources no such setting holds for the validation rows, which are read "
            "by what their keys show: give their keys the names of a format, or leave the path out "
            "and hold rows of the sources out by data.validation.fraction",
        error.kind());
  }
}

LoadedData load_data(const DataOptions& options, const text::Tokenizer& tokenizer) {
  check(options);
  if (options.sources.empty()) require_source_there(options.train_path, "data.train.path");
  for (const MixtureSource& source : options.sources) require_source_there(source.path, "data.train.sources");
  if (options.validation_path) require_source_there(*options.validation_path, "data.validation.path");
  LoadedFile train = options.sources.empty() ? load_file(options.train_path, options, tokenizer)
                                             : load_mixture(options, tokenizer);
  LoadedData data;
  data.train = train.dataset;
  data.train_report = train.report;
  if (options.validation_path) {
    LoadedFile validation;
    read_validation(options, [&] {
      validation = load_file(*options.validation_path, validation_rows(options), tokenizer);
    });
    data.validation = std::move(validation.dataset);
    data.validation_report = std::move(validation.report);
    if (data.validation->fingerprint() == data.train.fingerprint())
      log_warning(
          "[data.validation.path] the validation rows are the training rows: of a folder choose others by "
          "data.validation.split");
  } else if (options.validation_fraction != 0.0) {
    auto [rest, held] = split_by_rows(train.dataset, options.validation_fraction, options.seed);
    data.train = train.dataset.subset(std::move(rest));
    data.validation = train.dataset.subset(std::move(held));
  }
  return data;
}

std::string FileReport::describe() const {
  std::string text;
  if (!sources.empty()) {
    for (const FileReport& source : sources) text += source.describe() + "\n";
    return text + "together " + counted(examples, "example") + ", " + counted(tokens, "token") + " (" +
           std::to_string(label_tokens) + " trained on), longest " + std::to_string(longest);
  }
  text = file + ": " + counted(counts.rows, "row") + ", format " + format;
  if (!template_description.empty()) text += ", template " + template_description;
  text += "\n" + counted(examples, "example") + ", " + counted(tokens, "token") + " (" +
          std::to_string(label_tokens) + " trained on), longest " + std::to_string(longest);
  const auto count = [&](std::int64_t n, const char* one, const char* what) {
    if (n > 0) text += "\n" + counted(n, one) + what;
  };
  count(counts.truncated, "row", " cut to data.max_seq_len");
  count(counts.dropped, "row", " left out: longer than data.max_seq_len");
  count(counts.without_labels, "row", " left out: nothing in them to train on");
  count(counts.other_length, "row", " left out: another length than data.train.where allows");
  count(counts.duplicates, "example", " left out: the same as an earlier one");
  count(counts.empty_answers, "row", " with an empty answer, which teaches the model to say nothing");
  count(counts.split, "text", " split into consecutive chunks of data.max_seq_len");
  return text + (cache_hit ? "\nfrom the cache in " : "\ntokenised in ") + format_seconds(seconds);
}

}  // namespace lorikeet::data
