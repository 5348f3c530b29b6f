#pragma once

#include <string>
#include <vector>

namespace lorikeet::apps {

/// Prints rows of equally many cells to stdout, indented by two blanks, each column as wide as its widest
/// cell.
void print_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace lorikeet::apps
