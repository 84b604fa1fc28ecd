#include "egress/name.h"

#include <fmt/format.h>
#include <idn2.h>

#include "base/encoding.h"

namespace space::egress {
namespace {

tl::unexpected<Error> invalid(std::string_view text, std::string_view why) {
  std::string shown;
  for (char c : text.substr(0, 80)) shown.push_back(c > 0x20 && c < 0x7f ? c : '?');
  return fail(ErrorKind::invalid_argument, "invalid_name", fmt::format("'{}' is not a host name: {}", shown, why),
              "write the name as DNS has it, such as api.example.com");
}

bool is_digits(std::string_view label, int base) {
  if (label.empty()) return false;
  for (char c : label)
    if (!((c >= '0' && c <= '9') || (base == 16 && c >= 'a' && c <= 'f'))) return false;
  return true;
}

// The last label decides, as in the URL standard ("ends in a number"): DNS has no top-level domain like that.
bool reads_as_address(std::string_view last_label) {
  if (is_digits(last_label, 10)) return true;
  return last_label.starts_with("0x") && (last_label.size() == 2 || is_digits(last_label.substr(2), 16));
}

}  // namespace

Result<std::string> canonical_name(std::string_view text) {
  if (text.empty() || text.size() > 1024) return invalid(text, "it is empty or too long");
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u <= 0x20 || u == 0x7f) return invalid(text, "it holds white space or a control byte");
    if (std::string_view("%:/\\@[]?#,;\"'<>*(){}|^`~!$&+=").find(c) != std::string_view::npos)
      return invalid(text, "it holds a character that names do not have");
  }
  bool ascii = true;
  for (char c : text) ascii = ascii && static_cast<unsigned char>(c) < 0x80;
  std::string name(text);
  if (!ascii) {
    if (!is_utf8(text)) return invalid(text, "it is not UTF-8");
    char* out = nullptr;
    // Non-transitional processing with STD3 rules; a name that only some resolvers accept is refused by all of them.
    if (idn2_to_ascii_8z(name.c_str(), &out, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL | IDN2_USE_STD3_ASCII_RULES) != IDN2_OK)
      return invalid(text, "IDNA does not allow it");
    name = out;
    idn2_free(out);
  }
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (name.ends_with('.')) name.pop_back();
  if (name.empty() || name.size() > 253) return invalid(text, "it is empty or longer than 253 bytes");
  std::string_view rest = name, label;
  do {
    const auto dot = rest.find('.');
    label = rest.substr(0, dot);
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
    if (label.empty() || label.size() > 63 || (dot != std::string_view::npos && rest.empty()))
      return invalid(text, "it has an empty or too long label");
    if (label.front() == '-' || label.back() == '-') return invalid(text, "a label begins or ends with '-'");
    for (char c : label)
      if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
        return invalid(text, "it holds a character that names do not have");
    if (ascii && label.starts_with("xn--")) {
      // A label that is not the encoding of anything would be a second spelling for whoever decodes loosely.
      char* decoded = nullptr;
      if (idn2_to_unicode_8z8z(std::string(label).c_str(), &decoded, 0) != IDN2_OK) return invalid(text, "a label is not valid punycode");
      idn2_free(decoded);
    }
  } while (!rest.empty());
  if (reads_as_address(label)) return invalid(text, "it reads as an address");
  return name;
}

Result<std::string> canonical_pattern(std::string_view text) {
  if (!text.starts_with("*.")) return canonical_name(text);
  TRY(std::string name, canonical_name(text.substr(2)));
  if (name.find('.') == std::string::npos) return invalid(text, "a wildcard needs at least two labels behind it");
  return "*." + name;
}

}  // namespace space::egress
