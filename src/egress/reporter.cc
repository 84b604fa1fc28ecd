#include "egress/reporter.h"

#include <algorithm>
#include <fmt/format.h>

namespace space::egress {
namespace {

// What decides whether two are alike. Of bounded length: the guest chose some of it.
std::string likeness(const Event& event) {
  std::string key;
  for (const std::string* part : {&event.name, &event.protocol, &event.rule, &event.credential, &event.reason})
    key.append(*part).push_back('\0');
  // Of a host with a name the address only says which of its servers was reached.
  if (event.name.empty()) key.append(event.address);
  key.append(fmt::format(":{}", event.port));
  return key;
}

// What waits takes no more room than what is told, and holds no byte that would make two keys one.
void clip(Event& event) {
  const auto to = [](std::string& text, std::size_t most) { text = loggable(text, most); };
  to(event.name, Event::kLongestName);
  to(event.address, Event::kLongestAddress);
  to(event.protocol, Event::kLongestProtocol);
  to(event.method, Event::kLongestMethod);
  to(event.path, Event::kLongestPath);
  to(event.rule, Event::kLongestRule);
  to(event.reason, Event::kLongestReason);
  to(event.credential, Event::kLongestCredential);
}

void merge(Event& into, const Event& event) {
  const auto agree = [](std::string& text, const std::string& other) {
    if (text != other) text.clear();
  };
  agree(into.address, event.address);
  agree(into.method, event.method);
  agree(into.path, event.path);
  if (into.status != event.status) into.status = 0;
  into.bytes_up += event.bytes_up;
  into.bytes_down += event.bytes_down;
  into.generation = std::max(into.generation, event.generation);
  into.count += event.count;
}

std::uint64_t rate_of(const Event& event) {
  const bool passed = event.verdict == "allow" || event.verdict == "monitor";
  return passed && event.kind == "request" ? Reporter::kRequestsPerSecond : Reporter::kOthersPerSecond;
}

}  // namespace

void Reporter::Class::add_to_rest(const Event& event) {
  if (!rest) {
    rest.emplace();
    rest->kind = event.kind;
    rest->verdict = event.verdict;
    rest->count = 0;
    rest->unreported = true;
    rest->reason = "too many different ones at a time to be told apart";
  }
  rest->sandbox = event.sandbox;
  merge(*rest, event);
}

std::optional<Event> Reporter::take(Event event, Time now) {
  const auto [place, fresh] = classes_.try_emplace({event.kind, event.verdict});
  Class& same = place->second;
  if (fresh) same.budget.set_rate(rate_of(event));
  if (same.budget.try_take(1, now) && (same.few.try_take(1, now) || all_.try_take(1, now))) return event;
  clip(event);
  std::string key = likeness(event);
  if (const auto found = same.alike.find(key); found != same.alike.end()) {
    merge(found->second, event);
  } else if (same.alike.size() < kMostAlike) {
    same.alike.emplace(std::move(key), std::move(event));
  } else {
    same.add_to_rest(event);
  }
  return std::nullopt;
}

bool Reporter::waiting() const {
  return std::any_of(classes_.begin(), classes_.end(), [](const auto& c) { return !c.second.alike.empty() || c.second.rest; });
}

std::vector<Event> Reporter::flush() {
  std::vector<Event> out;
  for (bool more = true; more;) {
    more = false;
    for (auto& [words, same] : classes_) {
      if (same.alike.empty() || out.size() == kMostAlike) continue;
      out.push_back(std::move(same.alike.extract(same.alike.begin()).mapped()));
      more = true;
    }
  }
  for (auto& [words, same] : classes_) {
    for (const auto& [key, event] : same.alike) same.add_to_rest(event);
    same.alike.clear();
    if (same.rest) out.push_back(*std::exchange(same.rest, std::nullopt));
  }
  return out;
}

}  // namespace space::egress
