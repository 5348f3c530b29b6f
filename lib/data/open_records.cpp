#include "data/open_records.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/columnar/arrow_file.h"
#include "data/columnar/chunk_cache.h"
#include "data/columnar/parquet_file.h"
#include "data/csv_file.h"
#include "data/file_kind.h"
#include "data/record_file.h"

namespace lorikeet::data {
namespace {

std::unique_ptr<RecordSource> open_as(FileKind kind, FileBytes file,
                                      const std::shared_ptr<columnar::ChunkCache>& cache) {
  switch (kind) {
    case FileKind::kJson: return std::make_unique<RecordFile>(std::move(file));
    case FileKind::kCsv: {
      const char separator = csv_separator(file.text());
      return std::make_unique<CsvFile>(std::move(file), separator);
    }
    case FileKind::kTsv: return std::make_unique<CsvFile>(std::move(file), '\t');
    case FileKind::kParquet: return std::make_unique<columnar::ParquetFile>(std::move(file), cache);
    case FileKind::kArrow: return std::make_unique<columnar::ArrowFile>(std::move(file), cache);
  }
  throw Error("[data] unknown kind of file");
}

class JoinedRecords final : public RecordSource {
 public:
  JoinedRecords(std::vector<std::unique_ptr<RecordSource>> sources, std::string name)
      : sources_(std::move(sources)), name_(std::move(name)) {
    for (const auto& source : sources_) ends_.push_back(size() + source->size());
  }

  std::size_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::size_t line(std::size_t /*i*/) const override { return 0; }
  std::string where(std::size_t i) const override { return at(i).where(within(i)); }
  Json parse(std::size_t i) const override { return at(i).parse(within(i)); }
  void release_before(std::size_t i) const override { at(i).release_before(within(i)); }
  const std::string& name() const override { return name_; }

 private:
  std::size_t file_of(std::size_t i) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
  }
  const RecordSource& at(std::size_t i) const { return *sources_.at(file_of(i)); }
  std::size_t within(std::size_t i) const {
    const std::size_t file = file_of(i);
    return file == 0 ? i : i - ends_[file - 1];
  }

  std::vector<std::unique_ptr<RecordSource>> sources_;
  std::vector<std::size_t> ends_;  // source k holds the rows [ends_[k - 1], ends_[k])
  std::string name_;
};

class FirstRecords final : public RecordSource {
 public:
  FirstRecords(std::unique_ptr<RecordSource> source, std::size_t limit)
      : source_(std::move(source)), size_(std::min(limit, source_->size())) {}

  std::size_t size() const override { return size_; }
  std::size_t line(std::size_t i) const override { return source_->line(i); }
  std::string where(std::size_t i) const override { return source_->where(i); }
  Json parse(std::size_t i) const override { return source_->parse(i); }
  void release_before(std::size_t i) const override { source_->release_before(i); }
  const std::string& name() const override { return source_->name(); }

 private:
  std::unique_ptr<RecordSource> source_;
  std::size_t size_;
};

}  // namespace

std::unique_ptr<RecordSource> open_record_file(FileBytes file) {
  const FileKind kind = file_kind(file);
  return open_as(kind, std::move(file), std::make_shared<columnar::ChunkCache>());
}

std::unique_ptr<RecordSource> open_record_files(std::span<const std::filesystem::path> files,
                                                const std::string& name) {
  std::vector<std::unique_ptr<RecordSource>> sources;
  FileKind first_kind = FileKind::kJson;
  const auto cache = std::make_shared<columnar::ChunkCache>();
  for (const std::filesystem::path& path : files) {
    FileBytes file(path);
    const FileKind kind = file_kind(file);
    if (sources.empty()) first_kind = kind;
    if (kind != first_kind) {
      throw Error("[data] '" + name + "': expected files of one kind, found '" + sources[0]->name() + "' (" +
                  std::string(kind_name(first_kind)) + ") and '" + file.name() + "' (" +
                  std::string(kind_name(kind)) + "); choose by a pattern such as '*.parquet'");
    }
    sources.push_back(open_as(kind, std::move(file), cache));
  }
  if (sources.size() == 1) return std::move(sources[0]);
  return std::make_unique<JoinedRecords>(std::move(sources), name);
}

std::unique_ptr<RecordSource> first_records(std::unique_ptr<RecordSource> source, std::size_t limit) {
  return std::make_unique<FirstRecords>(std::move(source), limit);
}

}  // namespace lorikeet::data
