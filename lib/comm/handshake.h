#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

// The lines that launchers exchange while they join, and what proves that both know the run's secret. One
// line is one JSON object:
//
//   host    {"lorikeet": version, "nonce": N, "secret": bool}
//   joiner  {"nonce", "instance", "version", "nodes", "node", "processes", "proof"}
//   host    {"proof", "wait_seconds"}                  the joiner is in; others are waited for
//   host    {"store_port", "processes": [of each node]}           all are there
//   either  {"error": text, "code": exit code}         instead of any of these; the connection ends
//
// A proof is HMAC-SHA256 under the secret of the sender's role, both nonces and all that the joiner says,
// each with its length in front. The roles differ, so that neither side's proof serves as the other's, and
// the nonces are new for every connection, so that none serves twice.
namespace lorikeet::comm {

/// A line of the joining phase is never longer.
inline constexpr std::size_t kLongestJoinLine = 16384;

/// What the host says first.
struct Challenge {
  std::string version, nonce;
  bool has_secret = false;
};

/// What the joiner answers.
struct Hello {
  std::string nonce;
  std::string instance;  ///< names the joining launcher over several connections
  std::string version;
  int nodes = 0;
  int node = 0;
  int processes = 0;
  std::string proof;  ///< empty without a secret
};

struct Welcome {
  std::string proof;
  int wait_seconds = 0;  ///< how long the host goes on waiting for the rest
};

struct Start {
  int store_port = 0;
  std::vector<int> processes;
};

/// Why a side ends the joining.
struct Refusal {
  std::string text;
  ErrorKind kind = ErrorKind::kUsage;
};

std::string encode(const Challenge& challenge);
std::string encode(const Hello& hello);
std::string encode(const Welcome& welcome);
std::string encode(const Start& start);
std::string encode(const Refusal& refusal);

// nullopt for a line that isn't one, or has something unlikely in it.
std::optional<Challenge> read_challenge(std::string_view line);
std::optional<Hello> read_hello(std::string_view line);
std::optional<Welcome> read_welcome(std::string_view line);
std::optional<Start> read_start(std::string_view line);
std::optional<Refusal> read_refusal(std::string_view line);

std::string joiner_proof(const std::string& secret, const std::string& host_nonce, const Hello& hello);
std::string host_proof(const std::string& secret, const std::string& host_nonce, const Hello& hello);

}  // namespace lorikeet::comm
