#include "data/file_kind.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"

namespace lorikeet::data {
namespace {

using namespace std::string_view_literals;

[[noreturn]] void refuse(const std::string& name, const std::string& kind, const std::string& advice) {
  throw Error("[data] '" + name + "' is " + kind +
              "; expected JSON lines, a JSON array of rows, CSV, TSV, Parquet or Arrow; " + advice);
}

constexpr std::array<std::pair<std::string_view, FileKind>, 8> kEndings{{{".jsonl", FileKind::kJson},
                                                                         {".ndjson", FileKind::kJson},
                                                                         {".json", FileKind::kJson},
                                                                         {".csv", FileKind::kCsv},
                                                                         {".tsv", FileKind::kTsv},
                                                                         {".parquet", FileKind::kParquet},
                                                                         {".arrow", FileKind::kArrow},
                                                                         {".feather", FileKind::kArrow}}};

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

// The name's ending in lower case, without ".gz" and ".zst".
std::string ending_of(const std::string& name) {
  std::string lower = ascii_lower(name);
  for (const std::string_view packed : {".gz", ".zst"})
    if (lower.ends_with(packed)) lower.resize(lower.size() - packed.size());
  const std::size_t dot = lower.rfind('.');
  return dot == std::string::npos ? "" : lower.substr(dot);
}

// What a text that isn't UTF-8 is in, most likely.
std::string encoding_of(std::string_view text) {
  return text.starts_with("\xFF\xFE"sv) || text.starts_with("\xFE\xFF"sv) ? "UTF-16" : "WINDOWS-1252";
}

void require_utf8(const FileBytes& file) {
  const std::string_view text = file.bytes();
  for (std::size_t begin = 0; begin < text.size();) {
    // A piece ends behind a line, never inside a character.
    const std::size_t line_end = text.find('\n', std::min(begin + FileBytes::kPieceBytes, text.size()));
    const std::size_t end = line_end == std::string_view::npos ? text.size() : line_end + 1;
    const std::string_view piece = text.substr(begin, end - begin);
    if (const std::size_t bad = find_invalid_utf8(piece); bad != std::string_view::npos) {
      const std::string_view before = text.substr(0, begin + bad);
      throw Error("[data] line " + std::to_string(1 + std::count(before.begin(), before.end(), '\n')) +
                  " of " + file.name() + ": byte " + std::to_string(before.size()) +
                  " of the file is not UTF-8; convert the file: iconv -f " + encoding_of(text) + " -t UTF-8");
    }
    file.release(piece);
    begin = end;
  }
}

FileKind text_kind(std::string_view text, const std::string& name) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw Error("[data] '" + name + "' is empty: expected rows, such as JSON lines or a JSON array");
  const std::string_view line = line_from(text, 0);
  if (line.starts_with('{') || line.starts_with('[')) return FileKind::kJson;
  const std::string ending = ending_of(name);
  if (ending == ".csv") return FileKind::kCsv;
  if (ending == ".tsv") return FileKind::kTsv;
  if (is_json(line)) return FileKind::kJson;  // no row, which its own error says
  const bool is_prose = ending == ".txt" || ending == ".md";
  if (!is_prose && is_table(text, '\t')) return FileKind::kTsv;
  if (!is_prose && (is_table(text, ',') || is_table(text, ';'))) return FileKind::kCsv;
  refuse(name, "plain text, which isn't read",
         "write each document as a row {\"text\": \"...\"} on a line of its own");
}

}  // namespace

std::string_view kind_name(FileKind kind) {
  switch (kind) {
    case FileKind::kJson: return "JSON";
    case FileKind::kCsv: return "CSV";
    case FileKind::kTsv: return "TSV";
    case FileKind::kParquet: return "Parquet";
    case FileKind::kArrow: return "Arrow";
  }
  throw Error("[data] unknown kind of file");
}

FileKind file_kind(const FileBytes& file) {
  const std::string_view bytes = file.bytes();
  const std::string& name = file.name();
  if (bytes.starts_with("PAR1"sv)) return FileKind::kParquet;
  // The file format, and the stream format that Hugging Face's datasets caches in.
  if (bytes.starts_with("ARROW1"sv) || bytes.starts_with("\xFF\xFF\xFF\xFF"sv)) return FileKind::kArrow;
  if (bytes.starts_with("FEA1"sv)) {
    refuse(name, "a Feather file of the first version, which isn't read",
           "write it anew, for example in Python: pandas.read_feather(\"" + name + "\").to_parquet(...)");
  }
  if (bytes.starts_with("PARE"sv))
    refuse(name, "an encrypted Parquet file, which isn't read", "write it without encryption");
  if (bytes.starts_with("PK\x03\x04"sv))
    refuse(name, "a zip archive or a spreadsheet, which isn't read", "unpack it, or export its rows");
  if (bytes.starts_with("version https://git-lfs"sv))
    refuse(name, "a Git LFS pointer, not the data itself", "run 'git lfs pull'");
  require_utf8(file);
  return text_kind(file.text(), name);
}

bool is_data_file_name(const std::string& name) {
  const std::string ending = ending_of(name);
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](const auto& known) { return known.first == ending; });
}

}  // namespace lorikeet::data
