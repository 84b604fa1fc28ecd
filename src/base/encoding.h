// Text forms of bytes: hex, base64 (RFC 4648 section 4), base64url without padding (section 5), percent (RFC 3986).
// Decoders are strict: a character outside the alphabet, wrong padding or non-zero spare bits give std::nullopt.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace space {

std::string hex_encode(std::span<const std::byte> bytes);
std::optional<std::string> hex_decode(std::string_view text);
std::string base64_encode(std::span<const std::byte> bytes);
std::optional<std::string> base64_decode(std::string_view text);
std::string base64url_encode(std::span<const std::byte> bytes);
std::optional<std::string> base64url_decode(std::string_view text);

// Everything but unreserved characters is escaped; with `keep_slash` '/' stays.
std::string percent_encode(std::string_view text, bool keep_slash = false);
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space = false);

bool is_utf8(std::string_view text);  // well-formed by RFC 3629

inline std::span<const std::byte> as_bytes(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }
inline std::string_view as_text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace space
