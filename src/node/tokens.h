// The tokens that a client holds for a sandbox, made with one key of this node. Those for its ports are the same for the whole life of a
// sandbox, over pause, suspend and restarts, and others for every sandbox. Nothing is stored but the key (<data>/node/token.key, mode
// 0600).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/secret.h"
#include "node/record.h"

namespace space::node {

inline constexpr std::int64_t kAttachTokenLifeMs = 5 * 60 * 1000;

// Of one command session. Random, with its end and a signature in it, so that node keeps nothing of it and knows it again after a
// restart; a load that goes back, which raises the epoch, voids all of them.
struct AttachToken {
  std::string token;  // "at_" and base64url of 16 random bytes, the end (u64 ms), HMAC-SHA256
  std::int64_t expires_ms = 0;
};

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

  AttachToken attach_token(const SandboxRecord& record, std::string_view session, std::int64_t now_ms) const;
  // Of another session, sandbox or epoch, or of nobody: unauthenticated/token_invalid. Late: gone/token_expired.
  Result<> check_attach(const SandboxRecord& record, std::string_view session, std::string_view token, std::int64_t now_ms) const;

 private:
  explicit TokenKey(Secret key) : key_(std::move(key)) {}
  std::string attach_signature(const SandboxRecord& record, std::string_view session, std::string_view body) const;
  Secret key_;  // 32 bytes
};

}  // namespace space::node
