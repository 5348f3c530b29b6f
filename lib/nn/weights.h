#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "nn/row_order.h"
#include "ops/quantized/quantized_format.h"

namespace lorikeet::nn {

/// A frozen tensor of the checkpoint: where it lies in its unit's buffer, and in which order its rows do.
struct WeightSegment {
  std::string name;                 ///< the checkpoint's name, "model.layers.0.mlp.up_proj.weight"
  std::vector<std::int64_t> shape;  ///< as in the checkpoint
  DType dtype;                      ///< as stored here; of a quantised one uint8, its bytes
  std::int64_t offset_bytes = 0;    ///< in the unit's buffer of matrices, or that of vectors
  RowOrder order = {};              ///< the checkpoint's rows are in module order, the unit's in group order
  /// Of a quantised matrix, whose rows stay in module order; nullptr for plain numbers.
  const ops::QuantizedFormat* quantized = nullptr;
  /// Of plain numbers that the checkpoint may hold in this format: beside modules that it left as they were.
  const ops::QuantizedFormat* decoded_from = nullptr;

  bool is_matrix() const { return shape.size() > 1; }
  /// Bytes that are stored.
  std::int64_t bytes() const;
};

/// Which part of every unit's matrices a process holds: part `rank` of `size` equal ones.
struct WeightShard {
  int rank = 0;
  int size = 1;
};

class WeightUnit;

/// The matrices of a unit, whole, for as long as this object lives. Nobody keeps one, or a tensor out of it,
/// beyond that.
struct UnitLoan {
  const WeightUnit* unit;
  at::Tensor matrices;  ///< uint8 [at least unit->matrix_bytes()]

  /// Consecutive matrices from segment `first` on as one [rows, cols] matrix (their rows after each other).
  ops::FrozenMatrix matrix(std::size_t first, std::int64_t rows, std::int64_t cols) const;
};

/// Brings units whose matrices are split together while they are in use.
class UnitLender {
 public:
  virtual ~UnitLender() = default;
  /// Says in which order units are borrowed from now on, again and again: the next ones can be fetched ahead.
  virtual void expect(const std::vector<const WeightUnit*>& order) = 0;
  virtual UnitLoan borrow(const WeightUnit& unit) = 0;
};

/// The frozen tensors that are needed at the same time (one decoder layer; the embedding; the head). Matrices
/// are segments of one contiguous buffer, so that a unit can be split over devices, gathered or offloaded
/// whole; vectors (norms' scales, biases), which are small, lie in another that every process holds.
///
/// Life: `declare` every tensor, `allocate` once, then fill and use. Tensors declared in one call lie without
/// gaps after each other (rows of a concatenated weight); each call starts at a multiple of 512 bytes.
class WeightUnit {
 public:
  explicit WeightUnit(std::string name) : name_(std::move(name)) {}
  WeightUnit(const WeightUnit&) = delete;
  WeightUnit& operator=(const WeightUnit&) = delete;

  /// Returns the index of the first of the declared segments; the others follow. All matrices, or all
  /// vectors.
  std::size_t declare(std::vector<WeightSegment> tensors);

  /// Allocates the buffers, uninitialised: of the matrices only the part that is `shard`'s, cut at multiples
  /// of 512 bytes, or takes `matrices`, memory for that part. Further declarations are an error.
  void allocate(const at::Device& device, const WeightShard& shard = {}, const at::Tensor& matrices = {});

  const std::string& name() const { return name_; }
  const std::vector<WeightSegment>& segments() const { return segments_; }
  /// Of all segments, wherever they are held.
  std::int64_t bytes() const { return matrix_bytes_ + vector_bytes_; }
  std::int64_t matrix_bytes() const { return matrix_bytes_; }
  /// Of one of `size` equal parts of the matrices; the last ones may reach beyond the matrices' end.
  std::int64_t part_bytes(int size) const;

  /// View of a segment in its declared shape, rows in group order; of a matrix only where the unit isn't
  /// split. Throws for a quantised one, which is only to be had as numbers (UnitLoan::matrix).
  at::Tensor tensor(std::size_t segment) const;
  /// View of consecutive vectors from segment `first` on as one of `size` elements.
  at::Tensor vector(std::size_t first, std::int64_t size) const;

  /// The elements of a segment that this process holds: flat, from element `first` of the segment on, counted
  /// in group order; none where another process has all of it. Of a quantised segment the elements are its
  /// bytes.
  struct Held {
    at::Tensor values;
    std::int64_t first = 0;
  };
  Held held(std::size_t segment) const;
  /// The quantised segments from `first` on that have `rows` rows, as the parts of one matrix.
  std::vector<ops::MatrixPart> parts(std::size_t first, std::int64_t rows) const;
  /// The own part of the matrices, uint8 [part_bytes]; all of them where the unit isn't split.
  const at::Tensor& part() const { return matrices_; }

 private:
  at::Tensor view(std::size_t segment, at::IntArrayRef shape) const;

  std::string name_;
  std::vector<WeightSegment> segments_;
  std::int64_t matrix_bytes_ = 0, vector_bytes_ = 0;
  WeightShard shard_;
  at::Tensor matrices_, vectors_;  // uint8
  // By segment: views of vectors, made once, since every pass reads norms' scales; undefined for matrices.
  std::vector<at::Tensor> vector_views_;
};

/// All units of a model, in the order of use.
class WeightStore {
 public:
  /// A new unit, owned by the store.
  WeightUnit& add_unit(std::string name);
  /// Of all units: see WeightUnit. `on_host`: matrices in memory of the host that the device copies from.
  void allocate(const at::Device& device, const WeightShard& shard = {}, bool on_host = false);

  /// Where units get their whole matrices from; nullptr: from where they are, unless they are split or lie in
  /// the host's memory. Must outlive every loan.
  void lend_by(UnitLender* lender) { lender_ = lender; }
  /// See UnitLender; of units that aren't split the matrices are simply there.
  void expect(const std::vector<const WeightUnit*>& order) const;
  UnitLoan borrow(const WeightUnit& unit) const;

  const std::vector<std::unique_ptr<WeightUnit>>& units() const { return units_; }
  /// True where each process holds a part of the matrices: then a forward pass has collectives in it, and all
  /// processes have to make the same passes.
  bool is_split() const { return shard_.size > 1; }
  /// Of the whole model.
  std::int64_t bytes() const;
  /// Of what one of `size` processes holds.
  std::int64_t held_bytes(int size) const;
  /// What pinned memory for the matrices takes, or their bytes where the device is the host.
  std::int64_t host_bytes(at::DeviceType device) const;
  /// Of the vectors alone, which lie on the device wherever matrices do.
  std::int64_t vector_bytes() const;

 private:
  std::vector<std::unique_ptr<WeightUnit>> units_;
  WeightShard shard_;
  bool on_host_ = false;
  UnitLender* lender_ = nullptr;
};

}  // namespace lorikeet::nn
