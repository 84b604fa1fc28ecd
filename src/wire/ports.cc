#include "wire/ports.h"

#include <algorithm>
#include <charconv>

#include "base/random.h"

namespace space::wire {
namespace {

constexpr std::string_view kStart = "/v1/sandboxes/", kMiddle = "/ports/";

std::optional<std::uint16_t> number(std::string_view text) {
  std::uint16_t value = 0;
  if (text.empty() || text.front() == '0' || !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

bool is_port_path(std::string_view target) {
  if (!target.starts_with(kStart)) return false;
  target.remove_prefix(kStart.size());
  const std::size_t slash = target.find('/');
  return slash != target.npos && target.substr(slash).starts_with(kMiddle);
}

std::optional<PortAddress> port_of_path(std::string_view target) {
  if (!is_port_path(target)) return std::nullopt;
  target.remove_prefix(kStart.size());
  PortAddress out;
  const std::size_t slash = target.find('/');
  out.sandbox = target.substr(0, slash);
  target.remove_prefix(slash + kMiddle.size());
  const std::size_t end = std::min(target.find_first_of("/?"), target.size());
  const auto port = number(target.substr(0, end));
  if (!port || !is_id(out.sandbox)) return std::nullopt;
  out.port = *port;
  target.remove_prefix(end);
  if (!target.starts_with('/')) out.target = "/";
  out.target += target;
  return out;
}

std::optional<PortAddress> port_of_host(std::string_view host, std::string_view domain) {
  if (domain.empty()) return std::nullopt;
  const std::size_t dot = host.find('.'), dash = host.find('-');
  if (dot == host.npos || dash == host.npos || dash > dot) return std::nullopt;
  std::string_view rest = host.substr(dot + 1);
  if (!rest.starts_with(domain)) return std::nullopt;
  rest.remove_prefix(domain.size());
  if (!rest.empty() && (rest.front() != ':' || !number(rest.substr(1)))) return std::nullopt;
  PortAddress out;
  const auto port = number(host.substr(0, dash));
  out.sandbox = host.substr(dash + 1, dot - dash - 1);
  if (!port || !is_id(out.sandbox)) return std::nullopt;
  out.port = *port;
  return out;
}

}  // namespace space::wire
