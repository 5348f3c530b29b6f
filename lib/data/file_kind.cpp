#include "data/file_kind.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"

namespace lorikeet::data {
namespace {

using namespace std::string_view_literals;

[[noreturn]] void refuse(const std::string& name, const std::string& kind, const std::string& advice) {
  throw Error("[data] '" + name + "' is " + kind +
              "; expected JSON lines or a JSON array of rows, gzipped or not; " + advice);
}

std::string with_pandas(const std::string& call) {
  return "convert it, for example in Python: pandas." + call +
         ".to_json(\"rows.jsonl\", orient=\"records\", lines=True)";
}

// The first line from `begin` on that isn't empty, without its end.
std::string_view line_from(std::string_view text, std::size_t begin) {
  const std::size_t first = std::min(text.find_first_not_of(" \r\n", begin), text.size());
  return text.substr(first, std::min(text.find_first_of("\r\n", first), text.size()) - first);
}

// A header and a row that has at least as many of `separator`: a value may hold some more, in quotes.
bool is_table(std::string_view text, char separator) {
  const std::string_view header = line_from(text, 0);
  const std::string_view row = line_from(text, static_cast<std::size_t>(header.end() - text.begin()));
  const auto count = [&](std::string_view line) { return std::count(line.begin(), line.end(), separator); };
  return count(header) > 0 && count(row) >= count(header);
}

bool is_json(std::string_view text) {
  try {
    Json::parse(text, "line");
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The name's ending in lower case, without ".gz".
std::string ending_of(const std::string& name) {
  std::string lower = ascii_lower(name);
  if (lower.ends_with(".gz")) lower.resize(lower.size() - 3);
  const std::size_t dot = lower.rfind('.');
  return dot == std::string::npos ? "" : lower.substr(dot);
}

}  // namespace

void require_no_other_binary_kind(std::string_view bytes, const std::string& name) {
  if (bytes.starts_with("PAR1"sv))
    refuse(name, "a Parquet file, which isn't read", with_pandas("read_parquet(\"" + name + "\")"));
  // The file format, Feather's first version, and the stream format that Hugging Face's datasets caches in.
  if (bytes.starts_with("ARROW1"sv) || bytes.starts_with("FEA1"sv) ||
      bytes.starts_with("\xFF\xFF\xFF\xFF"sv)) {
    refuse(name, "an Arrow file, which isn't read",
           "convert it, for example in Python: datasets.Dataset.from_file(\"" + name +
               "\").to_json(\"rows.jsonl\")");
  }
  if (bytes.starts_with("PK\x03\x04"sv))
    refuse(name, "a zip archive or a spreadsheet, which isn't read", "unpack it, or export its rows");
  if (bytes.starts_with("version https://git-lfs"sv))
    refuse(name, "a Git LFS pointer, not the data itself", "run 'git lfs pull'");
}

void require_no_other_text_kind(std::string_view text, const std::string& name) {
  const std::string_view line = line_from(text, 0);
  if (line.starts_with('{') || line.starts_with('[')) return;
  const std::string ending = ending_of(name);
  const bool is_csv = ending == ".csv", is_tsv = ending == ".tsv";
  if (!is_csv && !is_tsv && is_json(line)) return;  // no row, which its own error says
  const bool is_prose = ending == ".txt" || ending == ".md";
  if (is_tsv || (!is_csv && !is_prose && is_table(text, '\t'))) {
    refuse(name, "a TSV file (tab-separated values), which isn't read",
           with_pandas("read_csv(\"" + name + "\", sep=\"\\t\")"));
  }
  if (is_csv || (!is_prose && is_table(text, ','))) {
    refuse(name, "a CSV file (comma-separated values), which isn't read",
           with_pandas("read_csv(\"" + name + "\")"));
  }
  refuse(name, "plain text, which isn't read",
         "write each document as a row {\"text\": \"...\"} on a line of its own");
}

}  // namespace lorikeet::data
