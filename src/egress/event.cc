#include "egress/event.h"

namespace space::egress {

std::string loggable(std::string_view text, std::size_t most) {
  std::string out(text.substr(0, most));
  for (char& c : out)
    if (c < 0x20 || c == 0x7f || static_cast<unsigned char>(c) >= 0x80) c = '?';
  return out;
}

json::object Event::to_json() const {
  json::object out{{"sandbox", sandbox}, {"kind", kind}, {"verdict", verdict}};
  auto text = [&](std::string_view key, const std::string& value, std::size_t most) {
    if (!value.empty()) out[key] = loggable(value, most);
  };
  auto number = [&](std::string_view key, std::uint64_t value) {
    if (value != 0) out[key] = value;
  };
  text("name", name, kLongestName);
  text("address", address, kLongestAddress);
  number("port", port);
  text("protocol", protocol, kLongestProtocol);
  text("method", method, kLongestMethod);
  text("path", path, kLongestPath);
  text("rule", rule, kLongestRule);
  text("reason", reason, kLongestReason);
  text("credential", credential, kLongestCredential);
  number("status", static_cast<std::uint64_t>(status));
  number("bytes_up", bytes_up);
  number("bytes_down", bytes_down);
  number("generation", static_cast<std::uint64_t>(generation));
  if (count > 1) number("count", count);
  if (unreported) out["unreported"] = true;
  return out;
}

}  // namespace space::egress
