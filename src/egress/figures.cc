#include "egress/figures.h"

#include <algorithm>
#include <fmt/format.h>

namespace space::egress {
namespace {

constexpr std::string_view kKinds[] = {"dns", "connection", "request", "security", "limit"};
constexpr std::string_view kVerdicts[] = {"allow", "deny", "error", "monitor"};
constexpr std::uint64_t kMostAtOnce = std::uint64_t{1} << 44;  // in the two seconds between two reports; more is no figure

template <std::size_t N>
std::string_view known(const std::string_view (&words)[N], std::string_view word) {
  const auto found = std::find(std::begin(words), std::end(words), word);
  return found == std::end(words) ? std::string_view("other") : *found;
}

std::uint64_t number(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  if (value && value->is_uint64()) return value->get_uint64();
  return value && value->is_int64() && value->get_int64() > 0 ? static_cast<std::uint64_t>(value->get_int64()) : 0;
}

}  // namespace

std::string_view Figures::known_kind(std::string_view kind) { return known(kKinds, kind); }
std::string_view Figures::known_verdict(std::string_view verdict) { return known(kVerdicts, verdict); }

void Figures::decided(const json::object& event) {
  const auto word = [&](std::string_view key) {
    const auto* value = event.if_contains(key);
    return value && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
  };
  std::uint64_t count = std::max<std::uint64_t>(number(event, "count"), 1);
  if (count > kMostAtOnce) count = 1;
  decisions_[{known_kind(word("kind")), known_verdict(word("verdict"))}] += count;
  const auto* unreported = event.if_contains("unreported");
  if (unreported && unreported->is_bool() && unreported->get_bool()) unreported_ += count;
}

void Figures::refused(const wire::Refusals& grown) {
  for (std::size_t i = 0; i < grown.size(); ++i) refused_[i] += std::min(grown[i], kMostAtOnce);
}

void Figures::counted(const json::object& before, const json::object& now) {
  const std::pair<const char*, std::uint64_t*> sums[] = {{"connections", &connections_},
                                                         {"requests", &requests_},
                                                         {"denied", &denied_},
                                                         {"bytes_up", &bytes_up_},
                                                         {"bytes_down", &bytes_down_}};
  for (const auto& [key, sum] : sums) {
    const std::uint64_t was = number(before, key), is = number(now, key);
    const std::uint64_t more = is >= was ? is - was : is;
    if (more <= kMostAtOnce) *sum += more;
  }
}

std::string Figures::text(const Now& now) const {
  std::string out;
  const auto line = [&out](std::string_view type, std::string_view name, std::uint64_t value) {
    out += fmt::format("# TYPE {0} {1}\n{0} {2}\n", name, type, value);
  };
  line("gauge", "space_egress_sandboxes", now.sandboxes);
  line("gauge", "space_egress_sandboxes_attached", now.attached);
  line("gauge", "space_egress_workers", now.workers);
  line("counter", "space_egress_worker_deaths_total", worker_deaths_);
  line("gauge", "space_egress_connections_open", now.open_connections);
  line("counter", "space_egress_connections_total", connections_);
  line("counter", "space_egress_requests_total", requests_);
  line("counter", "space_egress_denied_total", denied_);
  out += fmt::format(
      "# TYPE space_egress_bytes_total counter\nspace_egress_bytes_total{{direction=\"up\"}} "
      "{}\nspace_egress_bytes_total{{direction=\"down\"}} {}\n",
      bytes_up_, bytes_down_);
  line("gauge", "space_egress_names", now.names);
  line("gauge", "space_egress_credentials", now.credentials);
  out += "# TYPE space_egress_decisions_total counter\n";
  for (const auto& [labels, count] : decisions_)
    out += fmt::format("space_egress_decisions_total{{kind=\"{}\",verdict=\"{}\"}} {}\n", labels.first, labels.second, count);
  line("counter", "space_egress_decisions_unreported_total", unreported_);
  out += "# TYPE space_egress_packets_refused_total counter\n";
  for (std::size_t i = 0; i < refused_.size(); ++i)
    out += fmt::format("space_egress_packets_refused_total{{reason=\"{}\"}} {}\n", wire::kRefusals[i], refused_[i]);
  return out;
}

}  // namespace space::egress
