#include "bench/report.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "bench/verdict.h"

namespace lorikeet::bench {
namespace {

constexpr const char* kUnknown = "-";

std::string format_spread(const char* pattern, const std::optional<Spread>& spread, double divisor = 1) {
  if (!spread) return kUnknown;
  const auto number = [&](double value) { return format_number(pattern, value / divisor); };
  if (spread->count < 2) return number(spread->median);
  return number(spread->median) + " (" + number(spread->least) + " to " + number(spread->most) + ")";
}

std::string percent(const std::optional<double>& share) {
  return share ? format_number("%.1f%%", 100 * *share) : kUnknown;
}

std::string threads_text(const Row& row) {
  if (!row.threads) return kUnknown;
  return std::to_string(*row.threads) + " (" + std::to_string(*row.threads * row.devices) + ")";
}

// "cpu (Xeon)" three times over is told once.
std::string devices_text(const Row& row) {
  std::vector<std::string> told;
  for (std::size_t i = 0; i < row.device_names.size();) {
    std::size_t end = i;
    while (end < row.device_names.size() && row.device_names[end] == row.device_names[i]) ++end;
    told.push_back((end - i > 1 ? std::to_string(end - i) + " x " : "") + row.device_names[i]);
    i = end;
  }
  return join(told, ", ");
}

std::vector<std::string> header() {
  return {"",
          "runs",
          "tokens/s in all",
          "a device",
          "speed-up",
          "efficiency",
          "waiting for others",
          "for data",
          "peak memory",
          "loss difference",
          "threads each (in all)"};
}

std::vector<std::string> cells(const Row& row) {
  return {row.name,
          std::to_string(row.runs()),
          format_spread("%.0f", row.tokens_per_second),
          format_spread("%.0f", row.tokens_per_second, row.devices),
          format_spread("%.2fx", row.speed_up),
          percent(row.efficiency),
          percent(row.comm_share),
          percent(row.data_share),
          row.memory_peak_bytes ? format_bytes(*row.memory_peak_bytes) : kUnknown,
          row.loss_difference ? format_number("%.1e", *row.loss_difference) : kUnknown,
          threads_text(row)};
}

std::vector<std::string> device_lines(const Report& report) {
  std::vector<std::string> lines;
  for (const Row& row : report.evaluation.rows) {
    if (!row.tokens_per_second) continue;
    lines.push_back(row.name + ": " + devices_text(row) + (row.devices > 1 ? ", " + row.strategy : ""));
  }
  return lines;
}

Json spread_json(const std::optional<Spread>& spread) {
  if (!spread) return {};
  return Json()
      .set("median", spread->median)
      .set("least", spread->least)
      .set("most", spread->most)
      .set("count", static_cast<std::int64_t>(spread->count));
}

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json texts(const std::vector<std::string>& lines) { return Json::Array(lines.begin(), lines.end()); }

Json attempts_json(const Group& group, std::int64_t warmup_steps) {
  Json::Array array;
  for (const Attempt& attempt : group.attempts) {
    Json json = Json().set("round", attempt.round + 1);
    if (attempt.run) {
      json.set("tokens_per_second", tokens_per_second(*attempt.run, warmup_steps));
    } else {
      json.set("exit_code", attempt.exit_code).set("error", attempt.error);
    }
    array.push_back(std::move(json));
  }
  return Json(std::move(array));
}

Json row_json(const Row& row, const Group& group, std::int64_t warmup_steps) {
  return Json()
      .set("name", row.name)
      .set("devices", row.devices)
      .set("tokens_per_second", spread_json(row.tokens_per_second))
      .set("speed_up", spread_json(row.speed_up))
      .set("efficiency", or_null(row.efficiency))
      .set("comm_share", or_null(row.comm_share))
      .set("data_share", or_null(row.data_share))
      .set("memory_peak_bytes", or_null(row.memory_peak_bytes))
      .set("loss_difference", or_null(row.loss_difference))
      .set("threads_each", or_null(row.threads))
      .set("strategy", row.strategy)
      .set("device_names", texts(row.device_names))
      .set("runs", attempts_json(group, warmup_steps));
}

}  // namespace

std::string report_text(const Report& report) {
  std::vector<std::vector<std::string>> table{header()};
  for (const Row& row : report.evaluation.rows) table.push_back(cells(row));
  std::vector<std::size_t> widths(table[0].size(), 0);
  for (const auto& line : table) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out;
  for (const auto& line : table) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      out += line[i];
      if (i + 1 < line.size()) out.append(widths[i] - line[i].size() + 2, ' ');
    }
    out += '\n';
  }
  out += '\n';
  for (const std::string& line : device_lines(report)) out += line + "\n";
  for (const std::string& note : notes(report.evaluation, report.warmup_steps)) out += note + "\n";
  return out + "\n" + report.verdict + "\n";
}

std::string report_markdown(const Report& report) {
  std::string out = "# " + report.title + "\n\nCommand: `" + report.command + "`.\n";
  for (const std::string& fact : report.facts) out += fact + "\n";
  out += '\n';
  const auto add = [&out](const std::vector<std::string>& line) { out += "| " + join(line, " | ") + " |\n"; };
  add(header());
  add(std::vector<std::string>(header().size(), "---"));
  for (const Row& row : report.evaluation.rows) add(cells(row));
  out += "\n**" + report.verdict + "**\n\n";
  for (const std::string& line : device_lines(report)) out += "- " + line + "\n";
  for (const std::string& note : notes(report.evaluation, report.warmup_steps)) out += "- " + note + "\n";
  return out;
}

Json report_json(const Report& report) {
  Json::Array rows;
  for (std::size_t i = 0; i < report.evaluation.rows.size(); ++i)
    rows.push_back(row_json(report.evaluation.rows[i], report.groups[i], report.warmup_steps));
  const auto& base = report.evaluation.base;
  return Json()
      .set("command", report.command)
      .set("facts", texts(report.facts))
      .set("warmup_steps", report.warmup_steps)
      .set("base", base ? Json(report.evaluation.rows[*base].name) : Json())
      .set("rows", Json(std::move(rows)))
      .set("notes", texts(notes(report.evaluation, report.warmup_steps)))
      .set("verdict", report.verdict);
}

}  // namespace lorikeet::bench
