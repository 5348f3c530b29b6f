// lib/ops/cuda_tensor_core.h on the host: lanes pass each other where their parts lie.
#include "ops/cuda_tensor_core.h"

#include <bit>
#include <cstdint>

#include "card/host_kernel.h"

namespace lorikeet::ops::device {
namespace {

constexpr unsigned kAll = ~0U;

template <typename T>
T* pointer(std::uint64_t bits) {
  return reinterpret_cast<T*>(bits);  // NOLINT(performance-no-int-to-ptr): a lane's own pointer
}

std::uint64_t bits_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

const std::uint64_t* rows_of_lanes(const void* row, card::Place place) {
  if (bits_of(row) % 16 != 0)
    card::fail_thread("a row of a matrix begins between multiples of 16 bytes", place);
  return card::exchange(kAll, bits_of(row), place);
}

unsigned word(std::uint16_t low, std::uint16_t high) {
  return static_cast<unsigned>(low) | static_cast<unsigned>(high) << 16U;
}

template <typename T>
float element(unsigned word, unsigned index) {
  return static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(word >> index * 16)));
}

// A lane's part of a product, where others find it until it is done.
struct Parts {
  const Left* left;
  const Right* right;
  Sum* sum;
  bool done;
};

// The product of a whole warp.
template <typename T>
void multiply_all(const std::uint64_t* lanes) {
  constexpr unsigned kRows = 16, kColumns = 8, kInner = 16, kLanes = 32;
  float left[kRows][kInner], right[kInner][kColumns];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const Parts& of_lane = *pointer<Parts>(lanes[lane]);
    const unsigned group = lane / 4, pair = lane % 4 * 2;
    for (unsigned i = 0; i < 2; ++i) {
      for (unsigned word = 0; word < 4; ++word)
        left[group + word % 2 * 8][pair + word / 2 * 8 + i] = element<T>(of_lane.left->words[word], i);
      for (unsigned word = 0; word < 2; ++word)
        right[pair + word * 8 + i][group] = element<T>(of_lane.right->words[word], i);
    }
  }
  float product[kRows][kColumns] = {};
  for (unsigned row = 0; row < kRows; ++row) {
    for (unsigned k = 0; k < kInner; ++k) {
      for (unsigned column = 0; column < kColumns; ++column)
        product[row][column] += left[row][k] * right[k][column];
    }
  }
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    Parts& of_lane = *pointer<Parts>(lanes[lane]);
    for (unsigned i = 0; i < 4; ++i)
      of_lane.sum->values[i] += product[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    of_lane.done = true;
  }
}

}  // namespace

void load_matrices(const void* row, unsigned (&words)[4]) {
  const std::uint64_t* rows = rows_of_lanes(row, card::Place::here());
  const unsigned group = card::lane() / 4, pair = card::lane() % 4 * 2;
  for (unsigned i = 0; i < 4; ++i) {
    const auto* values = pointer<const std::uint16_t>(rows[i * 8 + group]);
    words[i] = word(values[pair], values[pair + 1]);
  }
}

void load_transposed(const void* row, unsigned (&words)[4]) {
  const std::uint64_t* rows = rows_of_lanes(row, card::Place::here());
  const unsigned group = card::lane() / 4, pair = card::lane() % 4 * 2;
  for (unsigned i = 0; i < 4; ++i)
    words[i] = word(pointer<const std::uint16_t>(rows[i * 8 + pair])[group],
                    pointer<const std::uint16_t>(rows[i * 8 + pair + 1])[group]);
}

unsigned transposed(unsigned own) {
  const std::uint64_t* words = card::exchange(kAll, own, card::Place::here());
  const unsigned group = card::lane() / 4, pair = card::lane() % 4 * 2;
  // Row `pair` is in the words of lanes 4 * pair and on, two elements each.
  const auto of_row = [&](unsigned row) {
    return static_cast<std::uint16_t>(words[row * 4 + group / 2] >> (group % 2 * 16));
  };
  return word(of_row(pair), of_row(pair + 1));
}

template <typename T>
void multiply_add(Sum& sum, const Left& left, const Right& right) {
  Parts own{&left, &right, &sum, false};
  const std::uint64_t* lanes = card::exchange(kAll, bits_of(&own), card::Place::here());
  // The first lane that goes on finds all others where they wait.
  if (!own.done) multiply_all<T>(lanes);
}
template void multiply_add<__nv_bfloat16>(Sum&, const Left&, const Right&);
template void multiply_add<__half>(Sum&, const Left&, const Right&);

void begin_copy(void* shared, const void* from, bool is_there) { card::begin_copy(shared, from, is_there); }

void end_group() { card::end_copies(); }

void wait_for_all_but(int groups) { card::wait_for_copies(groups); }

}  // namespace lorikeet::ops::device
