// The tokens that a client holds for a sandbox, derived from one key of this node: the same for the whole life of a sandbox, over
// pause, suspend and restarts, and another for every sandbox. Nothing is stored but the key (<data>/node/token.key, mode 0600).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "node/record.h"

namespace space::node {

class TokenKey {
 public:
  static constexpr std::string_view kEnvd = "envd";        // E2B's in-sandbox protocol on port 49983
  static constexpr std::string_view kTraffic = "traffic";  // every other port of a sandbox that is not public

  TokenKey() = default;  // no key: to be opened
  // Reads the key, or makes it where there is none. Blocks. corrupt/token_key_unreadable.
  static Result<TokenKey> open(const std::filesystem::path& file);

  // 64 hex digits: HMAC-SHA256 over purpose, tenant and sandbox, each with its length before it.
  std::string token(std::string_view purpose, const SandboxRecord& record) const;
  bool is_token(std::string_view given, std::string_view purpose, const SandboxRecord& record) const;  // in constant time

 private:
  explicit TokenKey(std::string key) : key_(std::move(key)) {}
  std::string key_;  // 32 bytes
};

// E2B's signature of a file's URL: "v1_" and SHA-256 over path, operation ("read" or "write"), user, token and, with one, the expiry.
std::string file_signature(std::string_view path, std::string_view operation, std::string_view user, std::string_view token, std::string_view expiry);

}  // namespace space::node
