#include "node/tokens.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/random.h"

namespace space::node {
namespace {
constexpr std::size_t kKeyBytes = 32;
}

Result<TokenKey> TokenKey::open(const std::filesystem::path& file) {
  auto text = read_file(file, 256);
  if (!text && text.error().kind == ErrorKind::not_found) {
    std::string key(kKeyBytes, '\0');
    random_bytes(std::as_writable_bytes(std::span(key)));
    TRY_VOID(write_file_durable(file, hex_encode(as_bytes(key)) + "\n", 0600));
    return TokenKey(std::move(key));
  }
  if (!text) return tl::unexpected(std::move(text).error());
  while (text->ends_with('\n')) text->pop_back();
  auto key = hex_decode(*text);
  if (!key || key->size() != kKeyBytes)
    return fail(ErrorKind::corrupt, "token_key_unreadable", fmt::format("{} holds no key", file.string()), "remove it: tokens that clients hold then become invalid");
  return TokenKey(std::move(*key));
}

std::string TokenKey::token(std::string_view purpose, const SandboxRecord& record) const {
  std::string message;
  for (const std::string_view part : {purpose, std::string_view(record.tenant), std::string_view(record.id)}) message += fmt::format("{}:{}", part.size(), part);
  return hex_encode(hmac_sha256(as_bytes(key_), as_bytes(message)));
}

bool TokenKey::is_token(std::string_view given, std::string_view purpose, const SandboxRecord& record) const {
  return equal_constant_time(given, token(purpose, record));
}

std::string file_signature(std::string_view path, std::string_view operation, std::string_view user, std::string_view token, std::string_view expiry) {
  std::string message = fmt::format("{}:{}:{}:{}", path, operation, user, token);
  if (!expiry.empty()) message += fmt::format(":{}", expiry);
  std::string text = base64_encode(sha256(message));
  while (text.ends_with('=')) text.pop_back();
  return "v1_" + text;
}

}  // namespace space::node
