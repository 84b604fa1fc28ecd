#include "base/encoding.h"

#include <array>
#include <cstdint>

namespace space {
namespace {

constexpr std::string_view kStandard = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kUrl = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::string_view kHex = "0123456789abcdef";

std::string encode64(std::span<const std::byte> bytes, std::string_view alphabet, bool pad) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  std::uint32_t bits = 0;
  int held = 0;
  for (std::byte b : bytes) {
    bits = bits << 8 | static_cast<std::uint32_t>(b);
    held += 8;
    while (held >= 6) out.push_back(alphabet[bits >> (held -= 6) & 63]);
    bits &= (1U << held) - 1;
  }
  if (held > 0) out.push_back(alphabet[bits << (6 - held) & 63]);
  while (pad && out.size() % 4 != 0) out.push_back('=');
  return out;
}

std::array<std::int8_t, 256> reverse_table(std::string_view alphabet) {
  std::array<std::int8_t, 256> table;
  table.fill(-1);
  for (std::size_t i = 0; i < alphabet.size(); ++i) table[static_cast<unsigned char>(alphabet[i])] = static_cast<std::int8_t>(i);
  return table;
}

std::optional<std::string> decode64(std::string_view text, const std::array<std::int8_t, 256>& table, bool padded) {
  if (padded) {
    if (text.size() % 4 != 0) return std::nullopt;
    for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int held = 0;
  for (char c : text) {
    const int v = table[static_cast<unsigned char>(c)];
    if (v < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(v);
    held += 6;
    if (held >= 8) out.push_back(static_cast<char>(bits >> (held -= 8) & 255));
    bits &= (1U << held) - 1;
  }
  if (bits != 0) return std::nullopt;
  return out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string hex_encode(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    out.push_back(kHex[static_cast<unsigned>(b) >> 4]);
    out.push_back(kHex[static_cast<unsigned>(b) & 15]);
  }
  return out;
}

std::optional<std::string> hex_decode(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<char>(high << 4 | low));
  }
  return out;
}

std::string base64_encode(std::span<const std::byte> bytes) { return encode64(bytes, kStandard, true); }
std::string base64url_encode(std::span<const std::byte> bytes) { return encode64(bytes, kUrl, false); }
std::optional<std::string> base64_decode(std::string_view text) {
  static const auto table = reverse_table(kStandard);
  return decode64(text, table, true);
}
std::optional<std::string> base64url_decode(std::string_view text) {
  static const auto table = reverse_table(kUrl);
  return decode64(text, table, false);
}

std::string percent_encode(std::string_view text, bool keep_slash) {
  std::string out;
  for (char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
                       c == '~' || (keep_slash && c == '/');
    if (plain) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back("0123456789ABCDEF"[static_cast<unsigned char>(c) >> 4]);
      out.push_back("0123456789ABCDEF"[static_cast<unsigned char>(c) & 15]);
    }
  }
  return out;
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out.push_back(static_cast<char>(high << 4 | low));
      i += 2;
    } else {
      out.push_back(plus_is_space && text[i] == '+' ? ' ' : text[i]);
    }
  }
  return out;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    int more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : -1;
    if (more < 0 || i + static_cast<std::size_t>(more) >= text.size() + (more == 0 ? 1 : 0)) return false;
    for (int k = 1; k <= more; ++k) {
      const auto d = static_cast<unsigned char>(text[i + static_cast<std::size_t>(k)]);
      if ((d & 0xc0) != 0x80) return false;
      if (k == 1 && ((c == 0xe0 && d < 0xa0) || (c == 0xed && d > 0x9f) || (c == 0xf0 && d < 0x90) || (c == 0xf4 && d > 0x8f)))
        return false;
    }
    i += static_cast<std::size_t>(more) + 1;
  }
  return true;
}

}  // namespace space
