#include "node/tokens.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/random.h"

namespace space::node {
namespace {
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kNonceBytes = 16, kTimeBytes = 8, kSignatureBytes = 32;

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string message;
  for (const std::string_view part : parts) message += fmt::format("{}:{}", part.size(), part);
  return message;
}
}  // namespace

Result<TokenKey> TokenKey::open(const std::filesystem::path& file) {
  auto text = read_file(file, 256);
  if (!text && text.error().kind == ErrorKind::not_found) {
    Secret key(kKeyBytes);
    random_bytes(key.bytes());
    std::string written = hex_encode(key.bytes()) + "\n";
    const WipeAtEnd wiped(written);
    TRY_VOID(write_file_durable(file, written, 0600));
    return TokenKey(std::move(key));
  }
  if (!text) return tl::unexpected(std::move(text).error());
  const WipeAtEnd wiped(*text);
  while (text->ends_with('\n')) text->pop_back();
  auto key = hex_decode(*text);
  if (!key || key->size() != kKeyBytes)
    return fail(ErrorKind::corrupt, "token_key_unreadable", fmt::format("{} holds no key", file.string()),
                "remove it: tokens that clients hold then become invalid");
  const WipeAtEnd decoded(*key);
  return TokenKey(Secret(*key));
}

std::string TokenKey::token(std::string_view purpose, const SandboxRecord& record) const {
  const std::string message = joined({purpose, record.tenant, record.id});
  return hex_encode(hmac_sha256(key_.bytes(), as_bytes(message)));
}

bool TokenKey::is_token(std::string_view given, std::string_view purpose, const SandboxRecord& record) const {
  return equal_constant_time(given, token(purpose, record));
}

std::string TokenKey::attach_signature(const SandboxRecord& record, std::string_view session, std::string_view body) const {
  const std::string message = joined({"attach", record.tenant, record.id, std::to_string(record.epoch), session, body});
  const Sha256 signature = hmac_sha256(key_.bytes(), as_bytes(message));
  return std::string(as_text(signature));
}

AttachToken TokenKey::attach_token(const SandboxRecord& record, std::string_view session, std::int64_t now_ms) const {
  AttachToken made;
  made.expires_ms = now_ms + kAttachTokenLifeMs;
  std::string body(kNonceBytes, '\0');
  random_bytes(std::as_writable_bytes(std::span(body)));
  for (std::size_t i = 0; i < kTimeBytes; ++i) body += static_cast<char>(static_cast<std::uint64_t>(made.expires_ms) >> (8 * i));
  made.token = "at_" + base64url_encode(as_bytes(body + attach_signature(record, session, body)));
  return made;
}

Result<> TokenKey::check_attach(const SandboxRecord& record, std::string_view session, std::string_view token, std::int64_t now_ms) const {
  const auto invalid = fail(ErrorKind::unauthenticated, "token_invalid", "this is no attach token of this command session",
                            "ask for a new one: POST …/commands/{session}/token");
  if (!token.starts_with("at_") || token.size() > 128) return invalid;
  const auto decoded = base64url_decode(token.substr(3));
  if (!decoded || decoded->size() != kNonceBytes + kTimeBytes + kSignatureBytes) return invalid;
  const std::string_view whole = *decoded, body = whole.substr(0, kNonceBytes + kTimeBytes);
  if (!equal_constant_time(whole.substr(body.size()), attach_signature(record, session, body))) return invalid;
  std::uint64_t expires_ms = 0;
  for (std::size_t i = 0; i < kTimeBytes; ++i) expires_ms |= std::uint64_t{static_cast<unsigned char>(body[kNonceBytes + i])} << (8 * i);
  if (static_cast<std::int64_t>(expires_ms) > now_ms) return {};
  return fail(ErrorKind::gone, "token_expired", "the attach token has expired", "ask for a new one: POST …/commands/{session}/token");
}

}  // namespace space::node
