#include "data/record_file.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/format.h"

namespace lorikeet::data {
namespace {

constexpr std::size_t kRowsForDensity = 4096;  // from so many on their density foretells the file's

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Offset just behind the JSON value that begins at `begin`, by brackets and quotes alone: whether the value
// is valid is Json::parse's to say. npos when the text ends inside it.
std::size_t value_end(std::string_view text, std::size_t begin) {
  std::size_t depth = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
      if (i >= text.size()) return std::string_view::npos;
      if (depth == 0) return i + 1;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return i;  // the end of the array around a bare number or word
      if (--depth == 0) return i + 1;
    } else if (depth == 0 && (c == ',' || is_blank(c))) {
      return i;
    }
  }
  return std::string_view::npos;
}

}  // namespace

RecordFile::RecordFile(FileBytes file) : file_(std::move(file)), text_(file_.text()), done_(file_) {
  const std::size_t first = text_.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos)
    throw Error("[data] '" + name() + "' is empty: expected JSON lines or a JSON array of rows");
  if (text_[first] == '[') {
    is_array_ = true;
    one_line_ = text_.find('\n', first) >= text_.find_last_not_of(" \t\r\n");
    file_.release(text_);
    split_array();
  } else {
    split_lines();
  }
  if (spans_.empty()) throw Error("[data] '" + name() + "' holds an empty array: expected at least one row");
}

void RecordFile::add_span(std::size_t offset, std::size_t length, std::size_t line) {
  if (length > UINT32_MAX) {
    throw Error("[data] line " + std::to_string(line) + " of " + name() + ": a row of " +
                std::to_string(length) + " bytes, expected at most 4294967295");
  }
  // Doubling would take up to three times the memory: room for as many rows as the file has if the rest is as
  // the first ones are.
  if (spans_.size() == spans_.capacity() && spans_.size() >= kRowsForDensity) {
    const double rest =
        static_cast<double>(text_.size()) / static_cast<double>(std::max<std::size_t>(offset, 1));
    spans_.reserve(
        static_cast<std::size_t>(static_cast<double>(spans_.size()) * std::clamp(rest, 1.0, 1e6) * 1.05) + 1);
  }
  spans_.push_back({offset, static_cast<std::uint32_t>(length), static_cast<std::uint32_t>(line)});
}

void RecordFile::split_lines() {
  PassedBytes passed(file_);
  std::size_t line = 1;
  for (std::size_t begin = 0; begin < text_.size(); ++line) {
    const std::size_t end = std::min(text_.find('\n', begin), text_.size());
    const bool blank = std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(begin),
                                   text_.begin() + static_cast<std::ptrdiff_t>(end), is_blank);
    if (!blank) add_span(begin, end - begin, line);
    passed.pass(text_.data() + begin);
    begin = end + 1;
  }
}

void RecordFile::split_array() {
  PassedBytes passed(file_);
  std::size_t line = 1;
  std::size_t counted = 0;  // newlines before here are in `line`
  const auto line_at = [&](std::size_t offset) {
    line += static_cast<std::size_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted),
                                                text_.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
    counted = offset;
    return line;
  };
  const auto fail = [&](std::size_t offset, const std::string& what) -> Error {
    return Error("[data] " + row_place(spans_.size() + 1, line_at(offset)) + " of " + name() + ": " + what);
  };
  const auto skip_blanks = [&](std::size_t i) {
    while (i < text_.size() && is_blank(text_[i])) ++i;
    return i;
  };
  std::size_t i = skip_blanks(0) + 1;  // behind '['
  bool first = true;
  while (true) {
    i = skip_blanks(i);
    if (i == text_.size())
      throw fail(i, "the JSON array is cut short: expected ']' before the end of the file");
    if (text_[i] == ']') {
      i = skip_blanks(i + 1);
      if (i != text_.size()) {
        throw Error("[data] line " + std::to_string(line_at(i)) + " of " + name() +
                    ": expected nothing after the JSON array's ']', whose rows are " +
                    std::to_string(spans_.size()));
      }
      return;
    }
    if (!first) {
      if (text_[i] != ',') throw fail(i, "expected ',' or ']' before this row of the JSON array");
      i = skip_blanks(i + 1);
    }
    const std::size_t end = value_end(text_, i);
    if (end == std::string_view::npos)
      throw fail(i, "the JSON array is cut short inside the row that begins here");
    if (end == i) throw fail(i, "expected a row of the JSON array");
    add_span(i, end - i, line_at(i));
    passed.pass(text_.data() + i);
    i = end;
    first = false;
  }
}

std::string RecordFile::row_place(std::size_t row, std::size_t line) const {
  const std::string place = "row " + std::to_string(row);
  return one_line_ ? place : place + " (line " + std::to_string(line) + ")";
}

std::string RecordFile::where(std::size_t i) const {
  const std::size_t line = spans_[i].line;
  return "[data] " + (is_array_ ? row_place(i + 1, line) : "line " + std::to_string(line)) + " of " + name();
}

// Where a line of rows is the beginning of a value that ends in a later one.
void RecordFile::refuse_several_lines(std::size_t i) const {
  if (is_array_) return;
  const std::size_t begin = text_.find_first_not_of(" \t\r\n", spans_[i].offset);
  const std::size_t end = value_end(text_, begin);
  if (end == std::string_view::npos || end <= spans_[i].offset + spans_[i].length) return;
  Json value;
  try {
    value = Json::parse(text_.substr(begin, end - begin), "value");
  } catch (const Error&) {
    return;  // brackets or quotes are missing in this line
  }
  const std::string rows = value.is_object() ? rows_inside(value, {}) : "";
  throw Error(where(i) + ": expected a row a line, got a JSON value over several lines" +
              (rows.empty() ? "; write one row a line, as `jq -c .` does" : rows));
}

Json RecordFile::parse(std::size_t i) const {
  const std::string_view record = text_.substr(spans_[i].offset, spans_[i].length);
  static constexpr std::string_view kOneLine = "not valid JSON at line 1, ";
  try {
    return Json::parse(record, "record");
  } catch (const Error& error) {
    refuse_several_lines(i);
    std::string what = error.what();
    what = what.substr(what.find("] ") + 2);
    // Lines and columns inside the record would be mistaken for the file's.
    if (what.starts_with(kOneLine)) {
      what = "not valid JSON at " + what.substr(kOneLine.size());
      if (is_array_) what.insert(what.find(':'), " of the row");
    } else if (what.starts_with("not valid JSON at line ")) {
      what.insert(what.find(','), " of the row");
    }
    throw Error(where(i) + ": " + what);
  }
}

}  // namespace lorikeet::data
