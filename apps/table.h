#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lorikeet::apps {

/// Rows of cells as lines with aligned columns behind `indent` blanks, the first `left_aligned` columns to
/// the left, the others, numbers, to the right. All rows have as many cells as the first, the header.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left_aligned = 1,
                       std::size_t indent = 0);

}  // namespace lorikeet::apps
