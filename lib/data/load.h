#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/options.h"
#include "data/token_cache.h"
#include "data/token_dataset.h"
#include "data/tokenize.h"
#include "text/tokenizer.h"

namespace lorikeet::data {

/// How the rows of `options.validation_path` are read: all of them, however many of the training rows are
/// taken.
DataOptions validation_rows(const DataOptions& options);

/// Runs `read`, which reads the rows of `options.validation_path`. Of several sources each has settings of
/// its own, and none of them holds for these rows: an Error of `read` that advises such a setting says so
/// then, and what to do instead.
void read_validation(const DataOptions& options, const std::function<void()>& read);

/// How a file became a data set: for the run's log and run.json.
struct FileReport {
  std::string file;                  ///< name without folder
  std::string format;                ///< "alpaca (found)" or "alpaca (configured)"
  Format rows = Format::kText;       ///< what its rows were read as
  std::string template_description;  ///< which and why; "" where rows need none
  RowCounts counts;
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  std::int64_t label_tokens = 0;
  std::int64_t longest = 0;  ///< tokens of the longest example
  bool cache_hit = false;
  double seconds = 0.0;
  std::vector<FileReport> sources{};  ///< of a mixture; the members above are its sums

  /// Lines for people: what was read, and a count for everything that was left out or cut.
  std::string describe() const;
};

struct LoadedFile {
  TokenDataset dataset;
  FileReport report;
};

/// The rows of `path` (a file, a folder or a pattern) as `options` say: of which split, how many, and as
/// what. Throws Error for every fault of the files and of these options.
std::unique_ptr<RecordSource> open_source(const std::filesystem::path& path, const RowOptions& options);

/// What is to be said where the chat template leaves out something that rows have; empty where it doesn't.
std::optional<std::string> incomplete_rows(const FileReport& report);

/// Encodes some rows of a source that open_source opened with the same options, the first ones and others
/// spread over it, as load_file would: its data set of these rows alone, and of its report all but the
/// template. Throws what it would throw for the first of them that has a fault.
LoadedFile try_rows(const RecordSource& rows, const DataOptions& options, const text::Tokenizer& tokenizer);

/// Tokenises one source, or takes it from the cache. `options` gives the rows' options, lengths, template and
/// cache; its paths other than cache_dir are not looked at. Throws Error for every fault of the file or the
/// settings.
LoadedFile load_file(const std::filesystem::path& path, const DataOptions& options,
                     const text::Tokenizer& tokenizer);

struct LoadedData {
  TokenDataset train;
  std::optional<TokenDataset> validation;
  FileReport train_report;                      ///< before validation_fraction is taken off
  std::optional<FileReport> validation_report;  ///< only of a file of its own
};

/// Training and validation data of a run. A validation fraction is taken from the training file by whole
/// rows, so that chunks of one text never lie on both sides.
LoadedData load_data(const DataOptions& options, const text::Tokenizer& tokenizer);

}  // namespace lorikeet::data
