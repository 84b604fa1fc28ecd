#include "wire/file_signature.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "base/encoding.h"

namespace space::wire {

std::string file_signature(std::string_view path, std::string_view operation, std::string_view user, std::string_view token,
                           std::string_view expiry) {
  std::string message = fmt::format("{}:{}:{}:{}", path, operation, user, token);
  if (!expiry.empty()) message += fmt::format(":{}", expiry);
  std::string text = base64_encode(sha256(message));
  while (text.ends_with('=')) text.pop_back();
  return "v1_" + text;
}

bool is_signed(const http::Exchange& exchange, std::string_view token) {
  const auto value = [&](std::string_view name) { return exchange.target().query_value(name).value_or(""); };
  return equal_constant_time(value("signature"), file_signature(value("path"), exchange.method() == "POST" ? "write" : "read",
                                                                value("username"), token, value("signature_expiration")));
}

}  // namespace space::wire
