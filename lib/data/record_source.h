#pragma once

#include <cstddef>
#include <string>

#include "base/json.h"

namespace lorikeet::data {

/// Rows of data by number, wherever they lie: one file, a folder of files, or rows made out of another
/// source's. Immutable; rows may be parsed by several threads.
class RecordSource {
 public:
  RecordSource() = default;
  RecordSource(const RecordSource&) = delete;
  RecordSource& operator=(const RecordSource&) = delete;
  virtual ~RecordSource() = default;

  virtual std::size_t size() const = 0;

  /// Line of the file (from 1) on which record `i` begins, where lines of one file say where a record is;
  /// else 0, and records are counted as rows.
  virtual std::size_t line(std::size_t i) const = 0;

  /// How errors about record `i` begin: "[data] line 17 of train.jsonl", "[data] row 3 of train.parquet".
  virtual std::string where(std::size_t i) const = 0;

  /// Record `i`, an object of the row's columns where the row is well-formed; throws Error naming its place
  /// if it can't be read.
  virtual Json parse(std::size_t i) const = 0;

  /// Says that records before `i` are done with: bytes of files that they lie in may leave the memory (they
  /// come back where they are read again). Not for two threads at once.
  virtual void release_before(std::size_t /*i*/) const {}

  /// The name of the file or folder, without the folder that it lies in.
  virtual const std::string& name() const = 0;
};

}  // namespace lorikeet::data
