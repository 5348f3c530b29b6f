#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/chunk_products.h"
#include "ops/vector.h"

// What recurrences with decaying states share on a CPU: a chunk of at most kChunk tokens, the rows of a head
// and the decays in it. Rows are padded with zeros to a multiple of kStep, and so are heads; a padding token
// has rows of 0 and g = 0, and changes nothing. With G_i = g_1 + ... + g_i inside a chunk, where e^g <= 1 is
// what a token leaves of the state, only exponentials of numbers <= 0 are taken: G_i, G_i - G_j for i >= j,
// and G_last - G_i.
namespace lorikeet::ops::cpu::chunked {

inline constexpr std::int64_t kChunk = 64;

/// Of each sequence.
std::vector<std::int64_t> lengths_of(const Sequences& sequences);

/// A chunk's decays for one head, per token.
struct Decays {
  double sum[kChunk];        ///< G, in fp64: differences of large sums keep their small parts
  float from_begin[kChunk];  ///< e^G
  float to_end[kChunk];      ///< e^(G_last - G)
  float whole;               ///< e^G_last
};

/// From g [padded rows], 0 for padding.
void sum_decays(const float* g, std::int64_t rows, Decays& out);

/// out [padded rows, padded width] = in [rows, width], with zeros around it; `stride` is in's.
void load_rows(const float* in, std::int64_t stride, std::int64_t rows, std::int64_t width, float* out);
void load_rows(const vector::Bf16* in, std::int64_t stride, std::int64_t rows, std::int64_t width,
               float* out);

/// out [rows, width] = scale[row] * in [rows, padded width]; `stride` is out's. Without a scale it is 1.
void store_rows(const float* in, const float* scale, std::int64_t rows, std::int64_t width, float* out,
                std::int64_t stride);
void store_rows(const float* in, const float* scale, std::int64_t rows, std::int64_t width, vector::Bf16* out,
                std::int64_t stride);

/// x [padded rows, padded width]: each row times scale[row], of which there are padded rows.
void scale_rows(const float* scale, std::int64_t rows, std::int64_t width, float* x);

/// The tile [kChunk, kChunk] e^(G_i - G_j) of `rows` tokens for i >= j, as multiply_lower reads it.
void decay_tile(const Decays& decays, std::int64_t rows, float* tile);

/// out = a * decays, of such tiles.
void times_decays(const float* a, const float* decays, std::int64_t rows, float* out);

/// sum over i < n of a_i b_i; n is a multiple of 64.
double inner_product(const float* a, const float* b, std::int64_t n);

}  // namespace lorikeet::ops::cpu::chunked
