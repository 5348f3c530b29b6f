#include "data/csv_file.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data {
namespace {

constexpr const char* kUnnamed = "Unnamed: 0";  // what pandas and datasets call a first column without a name

}  // namespace

char csv_separator(std::string_view text) {
  constexpr std::string_view kOthers = ";\t|";  // the first of them that is there
  bool quoted = false;
  std::size_t other = kOthers.size();
  for (std::size_t i = text.find_first_not_of("\r\n"); i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == ',') return ',';
    if (c == '\n' || c == '\r') break;
    other = std::min(other, kOthers.find(c));
  }
  return other < kOthers.size() ? kOthers[other] : ',';
}

CsvFile::CsvFile(FileBytes file, char separator)
    : file_(std::move(file)), text_(file_.text()), separator_(separator), done_(file_) {
  if (const std::size_t nul = text_.find('\0'); nul != std::string_view::npos) {
    const auto lines = std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(nul), '\n');
    throw Error(place(static_cast<std::size_t>(lines) + 1) + ": expected text, found a NUL byte");
  }
  file_.release(text_);
  PassedBytes passed(file_);
  std::size_t line = 1;
  for (std::size_t offset = 0; offset < text_.size();) {
    if (text_[offset] == '\n' || text_[offset] == '\r') {
      line += text_[offset++] == '\n' ? 1 : 0;
      continue;
    }
    const Span span{offset, line};
    std::vector<std::string> fields = read_record(offset, line);
    if (!columns_.empty()) {
      if (fields.size() != columns_.size()) {
        throw Error(place(span.line) + ": expected " + std::to_string(columns_.size()) +
                    " fields, as many as the first row names columns, got " + std::to_string(fields.size()) +
                    "; a field that holds the separator or a newline stands in double quotes");
      }
      spans_.push_back(span);
      passed.pass(text_.data() + span.offset);
      continue;
    }
    if (fields.size() > 1 && fields[0].empty()) fields[0] = kUnnamed;  // an index, as pandas writes it
    std::set<std::string> seen;
    for (const std::string& column : fields) {
      if (column.empty() || !seen.insert(column).second) {
        throw Error(
            place(span.line) + ": expected the first row to name each column once, found " +
            (column.empty() ? "one without a name" : "'" + escape_control(column.substr(0, 60)) + "' twice") +
            "; write those names into the first row");
      }
    }
    columns_ = std::move(fields);
  }
  if (spans_.empty())
    throw Error("[data] '" + name() + "' holds no row behind the one that names the columns");
}

std::string CsvFile::place(std::size_t line) const {
  return "[data] line " + std::to_string(line) + " of " + file_.name();
}

std::string CsvFile::where(std::size_t i) const { return place(spans_[i].line); }

std::string CsvFile::read_quoted(std::size_t& offset, std::size_t& line) const {
  const std::size_t opened = line;
  std::string field;
  for (++offset; true; ++offset) {
    const std::size_t quote = text_.find('"', offset);
    if (quote == std::string_view::npos) {
      throw Error(place(opened) +
                  ": a field's double quote is opened here and never closed; a quote inside a "
                  "quoted field is written twice");
    }
    const std::string_view part = text_.substr(offset, quote - offset);
    line += static_cast<std::size_t>(std::count(part.begin(), part.end(), '\n'));
    field += part;
    offset = quote + 1;
    if (offset >= text_.size() || text_[offset] != '"') return field;
    field += '"';
  }
}

std::vector<std::string> CsvFile::read_record(std::size_t& offset, std::size_t& line) const {
  const std::array<char, 4> stops{separator_, '\n', '\r', '"'};
  const std::string_view any_stop(stops.data(), stops.size());
  std::vector<std::string> fields;
  while (true) {
    if (offset < text_.size() && text_[offset] == '"') {
      fields.push_back(read_quoted(offset, line));
    } else {
      const std::size_t end = std::min(text_.find_first_of(any_stop, offset), text_.size());
      fields.emplace_back(text_.substr(offset, end - offset));
      offset = end;
    }
    if (offset == text_.size()) return fields;
    if (text_[offset] == separator_) {
      ++offset;
      continue;
    }
    if (text_.substr(offset, 2) == "\r\n") ++offset;
    if (text_[offset] != '\n') {
      throw Error(place(line) + ": expected the separator or the line's end behind field " +
                  std::to_string(fields.size()) + ", found '" + escape_control(text_.substr(offset, 1)) +
                  "'; a field with quotes in it stands in double quotes, which are written twice inside");
    }
    ++offset;
    ++line;
    return fields;
  }
}

Json CsvFile::parse(std::size_t i) const {
  std::size_t offset = spans_[i].offset, line = spans_[i].line;
  std::vector<std::string> fields = read_record(offset, line);
  Json::Object row;
  row.reserve(fields.size());
  for (std::size_t k = 0; k < fields.size(); ++k) row.emplace_back(columns_[k], Json(std::move(fields[k])));
  return row;
}

}  // namespace lorikeet::data
